// Sorts and filters the table of all datasets. The state lies in the address, so that a view can be shared:
// #sort=dw-aw&order=descending&environment=hopper
"use strict";
(() => {
  const form = document.getElementById("filters");
  const shown = document.getElementById("shown");
  const body = document.querySelector("#scores tbody");
  const heads = [...document.querySelectorAll("#scores thead th")];
  const asWritten = [...body.rows];
  const order = { key: "", down: false };

  function value(row, column) {
    const cell = row.cells[column];
    if (!("number" in heads[column].dataset)) return cell.textContent;
    return cell.dataset.value === "" ? null : Number(cell.dataset.value);
  }

  function sort() {
    const column = heads.findIndex((head) => head.dataset.key === order.key);
    heads.forEach((head, number) => {
      if (number === column) head.setAttribute("aria-sort", order.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    const rows = [...asWritten];
    if (column >= 0) {
      const words = new Intl.Collator("en", { numeric: true });
      const kept = rows.map((row) => [value(row, column), row]);
      kept.sort(([a], [b]) => {
        if (a === null || b === null) return (a === null) - (b === null); // what has no number comes last
        const ahead = typeof a === "number" ? a - b : words.compare(a, b);
        return order.down ? -ahead : ahead;
      });
      kept.forEach(([, row], number) => (rows[number] = row));
    }
    body.append(...rows);
  }

  function filter() {
    const wanted = [...new FormData(form)].filter(([, text]) => text !== "");
    let count = 0;
    for (const row of asWritten) {
      const fits = wanted.every(([name, text]) =>
        name === "text" ? row.cells[0].textContent.toLowerCase().includes(text.toLowerCase()) : row.dataset[name] === text
      );
      row.hidden = !fits;
      count += fits;
    }
    shown.textContent = `${count} of ${asWritten.length} rows`;
  }

  function remember() {
    const state = new URLSearchParams([...new FormData(form)].filter(([, text]) => text !== ""));
    if (order.key) {
      state.set("sort", order.key);
      state.set("order", order.down ? "descending" : "ascending");
    }
    history.replaceState(null, "", `#${state}` === "#" ? "#datasets" : `#${state}`);
  }

  function restore() {
    if (!location.hash.includes("=")) return; // a section, not a view
    const state = new URLSearchParams(location.hash.slice(1));
    for (const field of form.elements) {
      if (field.name) field.value = state.get(field.name) ?? "";
      if (field.selectedIndex < 0) field.value = ""; // a choice that there is not
    }
    order.key = state.get("sort") ?? "";
    order.down = state.get("order") === "descending";
    sort();
    filter();
    document.getElementById("datasets").scrollIntoView();
  }

  document.querySelector("#scores thead").addEventListener("click", (event) => {
    const head = event.target.closest("button")?.closest("th");
    if (!head) return;
    // numbers from the best down, names from A on; the next click turns it round
    const again = order.key === head.dataset.key;
    order.down = again ? !order.down : "number" in head.dataset && head.classList.contains("number");
    order.key = head.dataset.key;
    sort();
    remember();
  });
  form.addEventListener("input", () => {
    filter();
    remember();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(() => {
    order.key = "";
    sort();
    filter();
    remember();
  }));
  addEventListener("hashchange", restore);
  // what has to be scrolled sideways can be reached with the keyboard, and nothing else gets in its way
  const reachable = () => {
    for (const box of document.querySelectorAll(".wide")) box.tabIndex = box.scrollWidth > box.clientWidth ? 0 : -1;
  };
  addEventListener("resize", reachable);
  addEventListener("load", reachable);
  form.hidden = false;
  filter();
  restore();
})();
