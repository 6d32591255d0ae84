"""Writes the numbers of README.md from `results/`.

    python tools/readme.py            rewrites what stands between the marks
    python tools/readme.py --check    fails where a number is not the computed one

README cannot be filled while the docs site is built, so its tables stand in it, between `<!-- generated: NAME -->` and
`<!-- end -->`. NAME is a table of `experiments/evidence/tables.py`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
MARK = re.compile(r"(<!-- generated: (\w+) -->\n).*?(\n<!-- end -->)", re.DOTALL)


def generated(text: str) -> str:
    """The same text with every marked part computed anew."""
    sys.path.insert(0, str(ROOT))
    from experiments.evidence import tables

    def table(name: str) -> str:
        return tables.when(docs="docs/") if name == "when" else tables.TABLES[name]()

    return MARK.sub(lambda mark: f"{mark[1]}{table(mark[2])}{mark[3]}", text)


def main() -> None:
    text = README.read_text(encoding="utf-8")
    if "--check" in sys.argv[1:]:
        sys.exit(0 if generated(text) == text else "README.md is out of date; run python tools/readme.py")
    README.write_text(generated(text), encoding="utf-8")


if __name__ == "__main__":
    main()
