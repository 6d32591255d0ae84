#!/usr/bin/env bash
# The grids of the sets with 1 and 50 %, from nothing, side by side on one GPU: all cores play pools; processes beside
# them fit what samplers need, on the GPU; and each environment has two streams of packs that begin once its pools are
# there, one of methods that fit nothing (and iql-paths), one of those that do. Then td3bc-rest, then cql-rest, an
# environment at a time, so that what is finished is whole.
#
#     OUT=folder experiments/grid/streams.sh
#
# $OUT gets a folder for each part of a grid; copy their results into one. $KEPT is a folder whose packed results are
# not trained again (results/grid), $ENVIRONMENTS says which, in which order; $ROWS and run.sh's $STEPS, $SEEDS and
# $MORE are for trials.
set -euo pipefail
cd "$(dirname "$0")/../.."
export OUT WORK PYTHON=${PYTHON:-python3} WINNOW_DATA MUJOCO_GL=disable
OUT=$(realpath -m "${OUT:?name a folder: OUT=folder experiments/grid/streams.sh}")
WORK=$(realpath -m "${WORK:-$OUT/work}")
WINNOW_DATA=${WINNOW_DATA:-$WORK/data}
ENVIRONMENTS=${ENVIRONMENTS:-hopper ant walker2d halfcheetah}
FITTERS=${FITTERS:-4}
few=${ROWS:+--rows $ROWS} more=${MORE:-}
mkdir -p "$OUT" "$WORK/done"
# What runs in the background of a script does not hear Ctrl-C.
trap 'trap - TERM; echo "stopping; run the same command to continue from the last checkpoints"; kill 0' INT TERM
echo "$(date +%T) how far each part is: tail -f $WORK/*.log"
if command -v nvidia-cuda-mps-control > /dev/null; then nvidia-cuda-mps-control -d || true; fi

grid() { # NAME ENVIRONMENT PART OPTIONS…: a part of a grid, in a folder of its own
  local name=$2-$1-$3 kept
  mkdir -p "$WORK/$name"
  for kept in "${KEPT:-}/$1"-*.jsonl.gz; do # files of a grid that was trained in parts
    if [ -e "$kept" ]; then cat "$kept"; fi
  done > "$WORK/$name/kept"
  if [ -s "$WORK/$name/kept" ]; then mv "$WORK/$name/kept" "$WORK/$name/grid.jsonl.gz"; fi
  WORK=$WORK/$name OUT=$OUT/$name MORE="--environments $2 $few $more ${*:4}" nice -n 5 experiments/grid/run.sh "$1" \
    >> "$WORK/$name.log" 2>&1
  echo "$(date +%T) $name: $(grep -o '^[0-9,]* runs are done.*before' "$WORK/$name.log" | tail -n 1)"
}

ready() { # NAME COUNT: wait for so many files
  until [ "$(find "$WORK/done" -name "$1" | wc -l)" -ge "$2" ]; do sleep 1; done
}

ended() { # NAME: where this failed, the grids do it themselves or say why they can't
  for environment in $ENVIRONMENTS; do touch "$WORK/done/$environment.$1"; done
}

pools() {
  for environment in $ENVIRONMENTS; do
    for level in random expert medium; do
      "$PYTHON" -m winnow.cli data make "$environment-$level${ROWS:+@$ROWS}"
    done
    date +%T > "$WORK/done/$environment.pools"
  done
}

fits() { # METHODS: as many processes as there are to be
  local number name=${1%%,*}
  for number in $(seq "$FITTERS"); do
    (
      # shellcheck disable=SC2086
      XLA_PYTHON_CLIENT_MEM_FRACTION=0.02 "$PYTHON" experiments/grid/fits.py "$number/$FITTERS" "$1" "$WORK/done" \
        $ENVIRONMENTS $few || true
      ended "$name.$number-of-$FITTERS"
    ) > "$WORK/fits-$name-$number.log" 2>&1 &
  done
}

plain() {
  ready "$1.pools" 1
  grid iql-rest "$1" plain --methods pf,dual-aw,dual-uniform,uniform,aw,best-source,dw-aw,dw-uniform
  grid iql-paths "$1" plain
}

fitted() {
  ready "$1.continued.*" "$FITTERS"
  grid iql-rest "$1" fitted --methods continued,followed
  ready "$1.odpr-a.*" "$FITTERS"
  grid iql-rest "$1" fitted --methods odpr-a
}

(
  pools || true
  ended pools
) > "$WORK/pools.log" 2>&1 &
fits continued,followed
fits odpr-a
streams=()
for environment in $ENVIRONMENTS; do
  for part in plain fitted; do
    ( # so many processes play at a time for each
      export XLA_PYTHON_CLIENT_MEM_FRACTION=0.1 WINNOW_CORES=${WINNOW_CORES:-8}
      $part "$environment"
    ) &
    streams+=($!)
  done
done
wait "${streams[@]}"
export XLA_PYTHON_CLIENT_MEM_FRACTION=0.4
for environment in $ENVIRONMENTS; do grid td3bc-rest "$environment" all; done
for share in 1 50; do
  for environment in $ENVIRONMENTS; do grid cql-rest "$environment" all --shares "$share"; done
done
