#!/usr/bin/env bash
# What the docs say of a GPU, measured anew: the recipes under results/ that need one, in the order in which they are
# wanted most. Copy what you trust from $OUT to the places that its names say.
#
#     OUT=folder results/gpu.sh speed hours grids        (or some of these)
#
#     speed   benchmarks/accelerator.py and growth.py, then results/speed/side-by-side.py and trials.py
#     hours   a dry run of the paper's grid, on a machine that does nothing else: eight minutes of an H200
#     grids   results/grid/run.sh for the README's tables, their pools made first
set -euo pipefail
cd "$(dirname "$0")/.."
OUT=$(realpath -m "${OUT:?name a folder: OUT=folder results/gpu.sh …}")
PYTHON=${PYTHON:-python3}
mkdir -p "$OUT/speed"

speed() {
  "$PYTHON" benchmarks/accelerator.py --mixtures 2 --json "$OUT/speed/h200.json"
  "$PYTHON" benchmarks/growth.py --json "$OUT/speed/growth-h200.json"
  "$PYTHON" results/speed/side-by-side.py --json "$OUT/speed/side-by-side.json"
  for trial in packs larger blocks; do "$PYTHON" results/speed/trials.py "$trial" | tee "$OUT/speed/trials-$trial.txt"; done
}

hours() {
  COLUMNS=160 "$PYTHON" -m winnow.cli bench run paper --methods uniform,aw,pf,dw-aw,dw-uniform --dry-run --out "$OUT/paper" |
    tee "$OUT/speed/dry-run-h200.txt"
}

grids() {
  export WINNOW_DATA=${WINNOW_DATA:-$OUT/data}
  for grid in iql-long=200000 iql-medium=200000 iql-small=200000 td3bc-expert=100000 td3bc-medium=100000 cql-expert=60000 cql-medium=60000; do
    WORK="$OUT/work/${grid%=*}" OUT="$OUT/grid/${grid%=*}" STEPS=${grid#*=} results/grid/run.sh "${grid%=*}"
  done
}

for part in "${@:-speed}"; do
  case $part in
    speed | hours | grids) "$part" ;;
    *) echo "there is no part $part: speed, hours or grids" >&2; exit 2 ;;
  esac
done
