#!/usr/bin/env bash
# The grids of results/grid, on one machine with a GPU: pools, runs and evaluation, all from `winnow bench run`.
#
#     OUT=folder experiments/grid/run.sh GRID [SECONDS]        (SECONDS: stop after so many; what is finished is kept)
#
# Called again with the same $WORK it goes on where it stopped. $OUT gets the finished results and the log. Sets and
# seeds were chosen before any result was seen; the last four methods of iql-expert were added afterwards, and so were
# followed everywhere, dual-aw and dual-uniform with TD3+BC and CQL.
#
#     hopper-expert  hopper's eight mixtures with the expert (mixed and diverse, σ 1, 5, 10 and 50 %), seven methods
#     iql-expert     σ 5 and 10 % of the expert in all four environments, twelve methods
#     td3bc-expert   the same sets, TD3+BC, nine methods
#     cql-expert     the same, CQL
#     td3bc-medium   the same two with the medium policy in the expert's place
#     cql-medium
#     iql-shares     σ 1 and 50 % of the expert in all four environments
#     iql-long       σ 5 and 10 % of the expert and the small sets with it, eleven methods, 200,000 updates
#     iql-medium     the same with the medium policy in the expert's place
#     iql-rest       σ 1 and 50 % of the expert and of the medium policy, the eleven methods, 200,000 updates
#     td3bc-rest     the same sets, TD3+BC, six methods
#     cql-rest       the same, CQL
#     iql-paths      the exact dual over whole episodes, λ 0.1, on the diverse sets of iql-long and iql-medium
#     iql-small      the eight small sets, AW with its usual η in place of the published one
#     iql-million    10 % of the expert in pieces, in all four environments, with the paper's million updates
#     iql-precision  labels and AW on three small sets, eight seeds: once with each WINNOW_PRECISION, with a $WORK of its own
#     iql-studies    the studies of hopper's diverse sets with σ 5 and 10 %, IQL; baselines also on its mixed set
#     cql-studies    those of CQL that the paper has numbers of, and less conservatism
#     td3bc-studies  less conservatism and state weights, TD3+BC
set -euo pipefail
cd "$(dirname "$0")/../.."
GRID=${1:?name a grid: hopper-expert, iql-expert, td3bc-expert, cql-expert, td3bc-medium, cql-medium, iql-shares, iql-long, iql-medium, iql-rest, td3bc-rest, cql-rest, iql-paths, iql-small, iql-million, iql-precision, iql-studies, cql-studies or td3bc-studies}
WORK=$(realpath -m "${WORK:-/tmp/winnow-grid-$GRID}")
OUT=$(realpath -m "${OUT:-$WORK/out}")
PYTHON=$(realpath -s "$(command -v "${PYTHON:-python3}")")
MORE=${MORE:-} # further options, say --rows 20000; --environments ant or --methods aw,dw-aw for a part of a grid
PIECES=${PIECES:-mixed diverse} # diverse for half of a grid
LONG="--chunk 10000 --evaluation.rounds 3 --evaluation.curve 3 --evaluation.episodes 10"
SHORT="--chunk 10000 --evaluation.rounds 3 --evaluation.curve 2 --evaluation.episodes 10"
FEW="--methods uniform,aw,best-source,dw-aw,dw-uniform,continued"
ELEVEN="--methods uniform,aw,pf,odpr-a,best-source,dw-aw,dw-uniform,dual-aw,dual-uniform,continued,followed"
SIX="--methods uniform,aw,best-source,dw-aw,dw-uniform,followed"
NINE="--methods uniform,aw,best-source,dw-aw,dw-uniform,dual-aw,dual-uniform,continued,followed"
steps=100000 seeds=3 # of what is kept here; $STEPS and $SEEDS take their place
case $GRID in
  iql-million) steps=1000000 ;;
  iql-precision) steps=200000 seeds=8 ;;
  iql-long | iql-medium | iql-rest | iql-paths | iql-small) steps=200000 ;;
  cql-studies) steps=50000 ;;
  cql-*) steps=60000 ;;
esac
case $GRID in
  hopper-expert)
    words="$PIECES --levels expert --algorithms iql --environments hopper --chunk 50000 --evaluation.rounds 3 --evaluation.curve 3
      --methods uniform,aw,pf,dw-aw,dw-uniform,dual-aw,dual-uniform" ;;
  iql-expert)
    words="$PIECES --levels expert --algorithms iql --shares 5,10 $SHORT
      --methods uniform,aw,pf,best-source,dw-aw,dw-uniform,dual-aw,dual-uniform,dual-paths-aw,dual-paths-uniform,continued,dual-continued" ;;
  td3bc-expert | td3bc-medium | cql-expert | cql-medium)
    words="$PIECES --levels ${GRID#*-} --algorithms ${GRID%-*} --shares 5,10 $SHORT $NINE" ;;
  iql-shares) words="$PIECES --levels expert --algorithms iql --shares 1,50 $SHORT $FEW" ;;
  iql-long | iql-medium)
    case $GRID in iql-long) level=expert ;; *) level=medium ;; esac
    words="$PIECES small --levels $level --algorithms iql --shares 5,10 $LONG $ELEVEN" ;;
  iql-rest) words="$PIECES --algorithms iql --shares 1,50 $LONG $ELEVEN" ;;
  td3bc-rest | cql-rest) words="$PIECES --algorithms ${GRID%-*} --shares 1,50 $SHORT $SIX" ;;
  iql-paths) words="diverse --algorithms iql --shares 5,10 $LONG --methods dual-paths-aw" ;;
  iql-small)
    words="small --algorithms iql $LONG --methods aw,dw-aw,dual-aw --sweep sampler.temperature=0.1" ;;
  iql-million)
    words="diverse --levels expert --algorithms iql --shares 10 --chunk 25000 --evaluation.rounds 3 --evaluation.curve 7
      --evaluation.episodes 10 $SIX" ;;
  iql-precision)
    words="small --levels expert --environments hopper,walker2d,ant --algorithms iql $LONG --methods aw,best-source
      --sweep sampler.temperature=0.1" ;;
  iql-studies)
    words="study:lambda study:forms study:conservatism study:terminal study:state-weight study:temperature study:filtering
      study:baselines --algorithms iql --environments hopper --shares 5,10 $SHORT" ;;
  cql-studies) words="optidice-w study:lambda study:conservatism study:reg-only --algorithms cql --environments hopper $SHORT" ;;
  td3bc-studies) words="study:conservatism study:state-weight --algorithms td3bc --environments hopper $SHORT" ;;
  *) echo "there is no grid $GRID" >&2; exit 2 ;;
esac
WINNOW_DATA=$(realpath -m "${WINNOW_DATA:-$WORK/data}")
export WINNOW_DATA MUJOCO_GL=disable
mkdir -p "$WORK" "$OUT"
(
  cd "$WORK" # so that results, which keep the command, name no folder of this machine
  date +%T
  # shellcheck disable=SC2086
  timeout --foreground --signal=INT "${2:-100000}" "$PYTHON" -m winnow.cli bench run $words --seeds "${SEEDS:-$seeds}" \
    --steps "${STEPS:-$steps}" --evaluation.spacing 10000 --out grid $MORE || echo "stopped: $?"
  date +%T
) 2>&1 | tee -a "$WORK/grid.log"
cp -r "$WORK/grid/results" "$WORK/grid.log" "$OUT/" || true
