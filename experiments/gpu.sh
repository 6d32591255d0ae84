#!/usr/bin/env bash
# What the docs say of a GPU, measured anew: the recipes under experiments/ that need one, in the order in which they are
# wanted most. Copy what you trust from $OUT to the places that its names say.
#
#     OUT=folder experiments/gpu.sh speed hours grids        (or some of these)
#
#     speed   benchmarks/accelerator.py and growth.py, then experiments/speed/side-by-side.py and trials.py
#     hours   a dry run of the paper's grid, on a machine that does nothing else: eight minutes of an H200
#     grids   experiments/grid/run.sh and streams.sh for the README's tables, their pools made first
set -euo pipefail
cd "$(dirname "$0")/.."
OUT=$(realpath -m "${OUT:?name a folder: OUT=folder experiments/gpu.sh …}")
PYTHON=${PYTHON:-python3}
mkdir -p "$OUT/speed"

speed() {
  "$PYTHON" benchmarks/accelerator.py --mixtures 2 --json "$OUT/speed/h200.json"
  "$PYTHON" benchmarks/growth.py --json "$OUT/speed/growth-h200.json"
  "$PYTHON" experiments/speed/side-by-side.py --json "$OUT/speed/side-by-side.json"
  for trial in packs larger blocks; do "$PYTHON" experiments/speed/trials.py "$trial" | tee "$OUT/speed/trials-$trial.txt"; done
}

hours() {
  COLUMNS=160 "$PYTHON" -m winnow.cli bench run paper --methods uniform,aw,pf,dw-aw,dw-uniform --dry-run --out "$OUT/paper" |
    tee "$OUT/speed/dry-run-h200.txt"
}

grids() {
  export WINNOW_DATA=${WINNOW_DATA:-$OUT/data}
  WORK="$OUT/work/streams" OUT="$OUT/grid" experiments/grid/streams.sh
  for grid in iql-long iql-medium iql-small td3bc-expert td3bc-medium cql-expert cql-medium iql-million; do
    WORK="$OUT/work/$grid" OUT="$OUT/grid/$grid" experiments/grid/run.sh "$grid"
  done
  for precision in half default float32; do
    grid=iql-precision-$precision
    WINNOW_PRECISION=$precision WORK="$OUT/work/$grid" OUT="$OUT/grid/$grid" experiments/grid/run.sh iql-precision
  done
}

for part in "${@:-speed}"; do
  case $part in
    speed | hours | grids) "$part" ;;
    *) echo "there is no part $part: speed, hours or grids" >&2; exit 2 ;;
  esac
done
