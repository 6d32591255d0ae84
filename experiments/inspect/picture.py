"""The picture of docs/inspect.md: the page of the dome problem with 5 % of expert rows and two trained weighters.

    python experiments/inspect/picture.py [--keep DIR]

Needs Chromium. Writes docs/images/inspect.png. Nothing here compares methods: both runs are short.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from browser import CHROMIUM, Browser

from winnow import toy
from winnow.algorithms.bc import BC
from winnow.cli import main as winnow
from winnow.data import store
from winnow.errors import run_script
from winnow.training import train
from winnow.weighters.density import Density
from winnow.weighters.dual import Dual

OUT = Path(__file__).parents[2] / "docs" / "images" / "inspect.png"
NAME = "dome-random-expert-5%"
SIZE = 1280, 1490


def main() -> None:
    parser = argparse.ArgumentParser(description="The picture of docs/inspect.md")
    parser.add_argument("--keep", type=Path, help="a folder for the data, the runs and the page")
    args = parser.parse_args()
    if CHROMIUM is None:
        parser.error("this needs chromium, chromium-browser or google-chrome on the PATH; install one of them")
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or Path(temporary)
        file = folder / "dome.safetensors"
        page = folder / "page.html"
        store.save(toy.imbalanced(60_000).describe(name=NAME), file)
        runs = []
        for method, weighter in (("dw-aw", Density(hidden=(64, 64))), ("dual-uniform", Dual(hidden=(64, 64)))):
            out = folder / method
            train(store.load(file), BC(hidden=(32,)), method, weighter=weighter, steps=4_000, chunk=1_000, out=out)
            runs.append(str(out / f"{NAME}.bc.{method}.seed0.safetensors"))
        assert winnow(["inspect", str(file), "--html", str(page), "--run", *runs]) == 0
        with Browser(Path(temporary) / "profile") as browser:
            browser.look(width=SIZE[0], height=SIZE[1])
            browser.open(page)
            browser.click(f"#colouring input[value='weight: bc.{method}.seed0']")  # pyright: ignore[reportPossiblyUnboundVariable]
            browser.run("document.getElementById('coverage').scrollIntoView({behavior: 'instant'})")
            browser.look(width=SIZE[0], height=SIZE[1])
            shot = Image.open(browser.picture(folder / "page.png")).convert("RGB")
        # at most 256 colours: a fraction of the bytes
        shot.resize((960, 960 * SIZE[1] // SIZE[0]), Image.Resampling.LANCZOS).quantize(
            256, Image.Quantize.MAXCOVERAGE
        ).save(OUT, optimize=True)


if __name__ == "__main__":
    run_script(main)
