// Draws the map of states and the strips, coloured by what is chosen. Choices are radio buttons: mouse, arrow keys and
// screen readers work as everywhere.
"use strict";
(() => {
  const facts = JSON.parse(document.getElementById("facts").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const theme = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  function unpack(text, Kind) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return new Kind(bytes.buffer);
  }

  // -------------------------------------------------------------------------------------------------------- colours
  // What there is little of stands out from the paper, whether that is white or black.
  const RAMPS = {
    light: { scale: ["#d7dde3", "#8fbfe0", "#2f83bd", "#1b4f8f", "#2a0f4f"], weight: ["#b9d2e6", "#d9dcdf", "#e8b48a", "#d55e00", "#7a1f00"] },
    dark: { scale: ["#39414a", "#2c5f86", "#3f95cf", "#8ccdf5", "#fdf6d8"], weight: ["#26435c", "#454b52", "#8f5a34", "#e8772a", "#ffe0bd"] },
  };
  const STEPS = 64;

  function ramp(kind) {
    const stops = RAMPS[dark.matches ? "dark" : "light"][kind].map((hex) =>
      [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16))
    );
    return Array.from({ length: STEPS }, (_, step) => {
      const at = (step / (STEPS - 1)) * (stops.length - 1);
      const low = Math.min(Math.floor(at), stops.length - 2);
      const mixed = stops[low].map((value, i) => Math.round(value + (at - low) * (stops[low + 1][i] - value)));
      return `rgb(${mixed})`;
    });
  }

  // A weight's place on the ramp: 1, what a row has in the data, lies a quarter up, where the ramp is grey.
  function heavy(weight, octaves) {
    const at = weight > 0 ? Math.max(-1, Math.min(1, Math.log2(weight) / octaves)) : -1;
    return Math.round((at < 0 ? 0.25 * (1 + at) : 0.25 + 0.75 * at) * (STEPS - 1));
  }

  const fraction = (octaves, up) => (up ? `${2 ** octaves}` : `1/${2 ** octaves}`);

  function text(words) {
    const span = document.createElement("span");
    span.textContent = words;
    return span;
  }

  function bar(kind) {
    const box = document.createElement("span");
    box.className = "ramp";
    box.style.background = `linear-gradient(90deg, ${ramp(kind).join(", ")})`;
    return box;
  }

  function weightKey(box, octaves) {
    box.replaceChildren(
      text(`weight ${fraction(octaves, false)} and less`), bar("weight"), text(`${fraction(octaves, true)} and more; grey: 1, as in the data`)
    );
  }

  // -------------------------------------------------------------------------------------------------------- choices
  function choices(fieldset, names, chosen, choose) {
    names.forEach((name, number) => {
      const label = document.createElement("label");
      const input = document.createElement("input");
      label.className = "choice";
      input.type = "radio";
      input.name = fieldset.id;
      input.value = name;
      input.checked = number === chosen;
      input.addEventListener("change", () => choose(number));
      label.append(input, text(name));
      fieldset.append(label);
    });
    fieldset.hidden = false;
    choose(chosen);
  }

  function sharp(canvas) {
    const scale = devicePixelRatio || 1;
    const box = canvas.getBoundingClientRect();
    canvas.width = Math.max(1, Math.round(box.width * scale));
    canvas.height = Math.max(1, Math.round(box.height * scale));
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    return [pen, box.width, box.height];
  }

  const redraws = [];

  // ------------------------------------------------------------------------------------------------------------ map
  if (facts.map) {
    const canvas = document.getElementById("map");
    const [tip, key, said] = [document.querySelector(".tip"), document.querySelector(".map .key"), document.getElementById("coloured")];
    const x = unpack(facts.map.x, Uint16Array);
    const y = unpack(facts.map.y, Uint16Array);
    const source = unpack(facts.map.source, Uint16Array);
    const points = facts.sources.map(() => 0);
    source.forEach((number) => points[number]++);
    const labels = facts.map.labels.map(([name, packed]) => [name, unpack(packed, Uint32Array)]);
    const colourings = facts.map.colourings.map((one) => ({
      ...one,
      values: one.values ? unpack(one.values, Float32Array) : null,
    }));
    const EDGE = 8;
    let shown = 0;
    let size = [1, 1];
    const place = (i) => [EDGE + (x[i] / 65535) * (size[0] - 2 * EDGE), size[1] - EDGE - (y[i] / 65535) * (size[1] - 2 * EDGE)];

    function colours(one) {
      if (one.kind === "plain") return [Array(x.length).fill(0), [theme("accent")]];
      if (one.kind === "source") {
        return [source, facts.sources.map(({ colour }) => (colour === "#000000" ? theme("ink") : colour))];
      }
      const shade = one.kind === "weight"
        ? (value) => heavy(value, one.octaves)
        : (value) => Math.round(((value - one.low) / (one.high - one.low)) * (STEPS - 1));
      return [Array.from(one.values, shade), ramp(one.kind)];
    }

    function draw() {
      const one = colourings[shown];
      const [pen, width, height] = sharp(canvas);
      size = [width, height];
      const [shade, palette] = colours(one);
      const order = Array.from(x.keys());
      // the highest on top, or what comes from the source with the fewest points
      if (one.values) order.sort((a, b) => shade[a] - shade[b]);
      else if (one.kind === "source") order.sort((a, b) => points[source[b]] - points[source[a]]);
      const radius = x.length > 5000 ? 1.7 : x.length > 500 ? 2.4 : 3.6;
      pen.globalAlpha = x.length > 5000 ? 0.75 : 0.85;
      for (const i of order) {
        const [left, top] = place(i);
        pen.fillStyle = palette[shade[i]];
        pen.fillRect(left - radius, top - radius, 2 * radius, 2 * radius);
      }
      if (one.kind === "scale") key.replaceChildren(text(`${one.name} ${one.ends[0]}`), bar("scale"), text(one.ends[1]));
      else if (one.kind === "weight") weightKey(key, one.octaves);
      else if (one.kind === "source") {
        key.replaceChildren(...facts.sources.map(({ name }, number) => {
          const item = text(name);
          const dot = document.createElement("span");
          dot.className = "dot";
          dot.style.background = palette[number];
          item.prepend(dot);
          return item;
        }));
      } else key.replaceChildren();
      canvas.setAttribute("aria-label", `map of ${x.length} states. ${one.said}`);
    }

    canvas.addEventListener("pointermove", (event) => {
      const box = canvas.getBoundingClientRect();
      const [left, top] = [event.clientX - box.left, event.clientY - box.top];
      let [near, best] = [-1, 64];
      for (let i = 0; i < x.length; i++) {
        const [a, b] = place(i);
        const far = (a - left) ** 2 + (b - top) ** 2;
        if (far < best) [near, best] = [i, far];
      }
      tip.hidden = near < 0;
      if (near < 0) return;
      const one = colourings[shown];
      const parts = labels.map(([name, values]) => `${name} ${values[near].toLocaleString("en")}`);
      if (facts.sources.length > 1) parts.push(facts.sources[source[near]].name);
      if (one.values) parts.push(`${one.name} ${Number(one.values[near].toPrecision(4))}`);
      tip.textContent = parts.join(" · ");
      const right = left > box.width / 2;
      tip.style.left = right ? "auto" : `${left}px`;
      tip.style.right = right ? `calc(${box.width - left}px + 1.6rem)` : "auto";
      tip.style.top = `${top}px`;
    });
    canvas.addEventListener("pointerleave", () => (tip.hidden = true));
    choices(document.getElementById("colouring"), colourings.map(({ name }) => name), 0, (number) => {
      shown = number;
      said.textContent = colourings[number].said;
      draw();
    });
    redraws.push(draw);
  }

  // --------------------------------------------------------------------------------------- strips, and single rows
  const fieldset = document.getElementById("weighting");
  if (fieldset) {
    const names = facts.weightings.map(({ name }) => name);
    const rows = [...document.querySelectorAll("#strips td.strip")].map((cell) => cell.parentElement);
    const strips = facts.strips.map((one) => ({
      ...one,
      reward: unpack(one.reward, Float32Array),
      weights: one.weights.map((packed) => unpack(packed, Float32Array)),
    }));
    const longest = Math.max(1, ...strips.map(({ steps }) => steps));
    const least = Math.min(...strips.map(({ reward }) => Math.min(...reward)));
    const most = Math.max(...strips.map(({ reward }) => Math.max(...reward)));
    let shown = 0;

    function strip(canvas, one) {
      const [pen, width, height] = sharp(canvas);
      const [weight, palette] = [one.weights[shown], ramp("weight")];
      const [long, band] = [Math.max(3, (width * one.steps) / longest), height * 0.42];
      weight.forEach((value, i) => {
        const from = Math.floor((i * long) / weight.length);
        pen.fillStyle = palette[heavy(value, facts.weightings[shown].octaves)];
        pen.fillRect(from, 0, Math.ceil(((i + 1) * long) / weight.length) - from, band);
      });
      const high = (value) => height - 1 - (most > least ? (value - least) / (most - least) : 0.5) * (height - band - 4);
      pen.strokeStyle = theme("soft");
      pen.lineWidth = 1;
      pen.beginPath();
      one.reward.forEach((value, i) => {
        pen.lineTo((i * long) / one.reward.length, high(value));
        pen.lineTo(((i + 1) * long) / one.reward.length, high(value));
      });
      pen.stroke();
    }

    const draw = () => {
      rows.forEach((row, number) => {
        strip(row.querySelector("canvas"), strips[number]);
        row.querySelector(".mean").textContent = strips[number].means[shown];
      });
      const key = document.getElementById("weighting-key");
      if (key) weightKey(key, facts.weightings[shown].octaves);
    };
    const tables = [...document.querySelectorAll(".extremes")];
    const last = tables.at(-1)?.dataset.name; // what was learnt, where there is a run
    choices(fieldset, names, Math.max(0, names.indexOf(last)), (number) => {
      shown = number;
      for (const table of tables) table.hidden = table.dataset.name !== names[number];
      const alike = document.getElementById("all-alike");
      if (alike) alike.hidden = tables.some((table) => !table.hidden);
      const weighed = document.getElementById("weighed");
      if (weighed) weighed.textContent = `weights of ${names[number]}`;
      draw();
    });
    redraws.push(draw);
  }

  const again = () => redraws.forEach((draw) => draw());
  addEventListener("resize", again);
  dark.addEventListener("change", again);
  // what has to be scrolled sideways can be reached with the keyboard, and nothing else gets in its way
  const reachable = () => {
    for (const box of document.querySelectorAll(".wide")) box.tabIndex = box.scrollWidth > box.clientWidth ? 0 : -1;
  };
  addEventListener("resize", reachable);
  addEventListener("load", reachable);
})();
