"""Time, memory and page size of the report of a whole benchmark: 113 datasets, 3 algorithms, 5 methods and 3 seeds.

    python benchmarks/report.py [--keep DIR]

The 5085 results are made up. Prints seconds (wall clock and processor) and the size of the page. The goal is less than
30 s and 10 MB. If Chromium is installed, it also scrolls the page from top to bottom and prints how long frames took.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

for folder in ("tools", "tests"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))

from browser import CHROMIUM, Browser  # noqa: E402
from helpers.made_results import planned, write  # noqa: E402

from winnow.bench.plan import How  # noqa: E402
from winnow.errors import run_script  # noqa: E402

METHODS = ("uniform", "aw", "pf", "dw-aw", "dw-uniform")
SCROLL = """new Promise(done => {
  const times = [];
  let last = performance.now(), y = 0;
  const step = now => {
    times.push(now - last);
    last = now;
    y += 300;
    scrollTo({top: y, behavior: "instant"});
    if (y < document.documentElement.scrollHeight) requestAnimationFrame(step);
    else done(times.slice(1).sort((a, b) => a - b));
  };
  requestAnimationFrame(step);
})"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Time, memory and page size of a report of 5085 runs")
    parser.add_argument("--keep", type=Path, help="a folder for the results and the page")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or Path(temporary)
        if not (folder / "results").exists():
            write(folder, planned(["paper"], ("iql", "cql", "td3bc"), METHODS, 3, How()))
        page = folder / "report.html"
        began = time.perf_counter()
        command = [sys.executable, "-m", "winnow.cli", "report", str(folder), "--html", str(page)]
        timed = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); " + (
            "used = resource.getrusage(resource.RUSAGE_CHILDREN); print(used.ru_utime + used.ru_stime, used.ru_maxrss)"
        )
        command = [sys.executable, "-c", timed, *command]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        seconds = time.perf_counter() - began
        processor, memory = map(float, output.split()[-2:])
        runs = sum(1 for _ in (folder / "results").glob("*.json"))
        print(f"{runs} runs: {seconds:.1f} s ({processor:.1f} s of a processor, {memory / 1024:.0f} MB of memory)")
        print(f"page: {page.stat().st_size / 1e6:.2f} MB")
        if CHROMIUM:
            with Browser(Path(temporary) / "profile") as browser:
                browser.look()
                began = time.perf_counter()
                browser.open(page)
                opened = time.perf_counter() - began
                frames = browser.run(SCROLL)
                sorts = browser.run(
                    "(b => { const t = performance.now(); b.click(); document.body.offsetHeight;"
                    " return performance.now() - t; })(document.querySelector('#scores th:last-child button'))"
                )
            middle = frames[len(frames) // 2]
            late = frames[int(0.95 * len(frames))]
            print(f"opened in {opened:.2f} s, sorted in {sorts:.0f} ms; {len(frames)} frames while scrolling: "
                  f"median {middle:.0f} ms, 95 % {late:.0f} ms, longest {frames[-1]:.0f} ms")  # fmt: skip


if __name__ == "__main__":
    run_script(main)
