#!/usr/bin/env bash
# The grid of results/grid, on one machine with a GPU: pools, runs and evaluation, all from `winnow bench run`.
#
#     OUT=folder results/grid/run.sh [SECONDS]        (SECONDS: stop the grid after so many; what is finished is kept)
#
# Called again with the same $WORK it goes on where it stopped. $OUT gets the finished results and the log.
# Chosen before any of its results was seen: hopper's eight mixtures with the expert (mixed and diverse, σ 1, 5, 10 and
# 50 %), IQL, seven methods, three seeds; 20 episodes in each of the last three rounds and three earlier ones.
set -euo pipefail
cd "$(dirname "$0")/../.."
WORK=${WORK:-/tmp/winnow-grid}
OUT=${OUT:-$WORK/out}
PYTHON=${PYTHON:-python3}
STEPS=${STEPS:-200000} # 100000 for what is kept in hopper-expert-100k
MORE=${MORE:-} # further options, say --rows 20000
export WINNOW_DATA=$WORK/data MUJOCO_GL=disable
mkdir -p "$WORK" "$OUT"
(
  date +%T
  # shellcheck disable=SC2086
  timeout --signal=INT "${1:-100000}" "$PYTHON" -m winnow.cli bench run mixed diverse --environments hopper --levels expert \
    --algorithms iql --methods uniform,aw,pf,dw-aw,dw-uniform,dual-aw,dual-uniform --seeds 3 --steps "$STEPS" \
    --evaluation.rounds 3 --evaluation.curve 3 --evaluation.spacing 10000 --chunk 50000 --out "$WORK/grid" $MORE || echo "stopped: $?"
  date +%T
) 2>&1 | tee -a "$WORK/grid.log"
cp -r "$WORK/grid/results" "$WORK/grid.log" "$OUT/" || true
