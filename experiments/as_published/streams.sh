#!/usr/bin/env bash
# Everything of protocol.md on one machine with a GPU, side by side.
#
#     WORK=folder experiments/as_published/streams.sh start [PART…]    begin these streams in the background, or all
#     WORK=folder experiments/as_published/streams.sh wait SECONDS     until all are done, or for so long
#     WORK=folder experiments/as_published/streams.sh gather OUT       pack what there is so far into OUT
#
# Parts: `grid` is sections 1 and 2 of the protocol, `updates` section 3, `ours` and `peers` the two sides of section 4.
# Results of `peers` and `ours` may come from two machines: only runs on the same rows are compared.
#
# $SPEED (seconds, 0 for none) is measured first, alone on the GPU. For trials: $ROWS, $STEPS, $LONG, $SEEDS, $UPDATES,
# $SETS, and on a machine without a GPU PRECISION=default SIDES=winnow. Called again after it was killed, `start` goes on
# where it stopped.
set -euo pipefail
cd "$(dirname "$0")/../.."
export WORK PYTHON=${PYTHON:-python3} WINNOW_DATA MUJOCO_GL=disable PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
WORK=$(realpath -m "${WORK:?name a folder: WORK=folder experiments/as_published/streams.sh …}")
WINNOW_DATA=${WINNOW_DATA:-$WORK/data}
STEPS=${STEPS:-200000} LONG=${LONG:-1000000} SEEDS=${SEEDS:-5} UPDATES=${UPDATES:-12000} SPEED=${SPEED:-50}
PEERS=${PEERS:-8} # processes that train d3rlpy
ALGORITHMS=${ALGORITHMS:-iql cql} # what d3rlpy trains here
few=${ROWS:+--rows $ROWS}
POOLS="hopper-random hopper-expert walker2d-random walker2d-expert halfcheetah-random halfcheetah-expert"
PARTS="grid updates ours peers"
mkdir -p "$WORK/done" "$WORK/logs"

stream() { # NAME COMMAND…: in the background, in a session of its own, so that it outlives this shell
  local name=$1
  shift
  rm -f "$WORK/done/$name"
  setsid bash -c 'name=$1; shift; date +%T; "$@" || echo "failed: $?"; date +%T; touch "$WORK/done/$name"' _ "$name" "$@" \
    > "$WORK/logs/$name.log" 2>&1 < /dev/null &
}

ready() { # NAME…: wait for these to be done
  local name
  for name; do until [ -e "$WORK/done/$name" ]; do sleep 0.5; done; done
}

# ------------------------------------------------------------------------------------------- what streams do

speed() {
  if [ "$SPEED" != 0 ]; then
    "$PYTHON" benchmarks/accelerator.py --mixtures 2 --largest 256 --seconds 4 --limit "$SPEED" --json "$WORK/speed.json"
  fi
}

pool() { nice -n 10 "$PYTHON" -m winnow.cli data make "$1${ROWS:+@$ROWS}"; }

pools() {
  local name
  for name in $POOLS; do
    pool "$name"
    touch "$WORK/done/pool.$name"
  done
}

grid() { # FOLDER ENVIRONMENTS SUITES OPTIONS…
  local folder=$1 environments=$2 suites=$3
  shift 3
  # shellcheck disable=SC2086
  "$PYTHON" -m winnow.cli bench run $suites --levels expert --shares 10 --environments "$environments" --algorithms iql \
    --seeds "$SEEDS" --steps "$STEPS" --chunk $((STEPS / 10)) --evaluation.rounds 3 --evaluation.curve 3 --evaluation.episodes 10 \
    --evaluation.spacing $((STEPS / 20)) --out "$WORK/$folder" $few "$@"
}

iql_grid() { # ENVIRONMENT NAME METHODS METHOD: these on both kinds of set, and one with the range of stored fragments
  ready speed "pool.$1-random" "pool.$1-expert"
  export XLA_PYTHON_CLIENT_MEM_FRACTION=0.14 WINNOW_CORES=${CORES:-3}
  grid "grid-$1-$2" "$1" "mixed diverse" --methods "$3"
  grid "range-$1-$2" "$1" diverse --methods "$4" --sweep algorithm.reward_scaling=stored-range
}

updates() { # ALGORITHM POOLS…
  local algorithm=$1
  shift
  ready speed "$@"
  export XLA_PYTHON_CLIENT_MEM_FRACTION=0.12 WINNOW_CORES=3
  # shellcheck disable=SC2086
  WINNOW_PRECISION=${PRECISION:-half} "$PYTHON" experiments/as_published/updates.py "$algorithm" --steps "$LONG" \
    --out "$WORK/updates-$algorithm" $few
}

curves() { # OPTIONS…: runs of benchmarks/conformance.py
  # shellcheck disable=SC2086
  "$PYTHON" benchmarks/conformance.py run --out "$WORK/curves" --updates "$UPDATES" ${SETS:+--sets $SETS} "$@"
}

ours() { # ALGORITHMS…
  ready speed pools
  export XLA_PYTHON_CLIENT_MEM_FRACTION=0.05 WINNOW_CORES=2
  # shellcheck disable=SC2086
  curves --sides ${SIDES:-winnow winnow-half} --algorithms "$@"
}

peer() {
  ready pools
  export JAX_PLATFORMS=cpu WINNOW_CORES=1
  # shellcheck disable=SC2086
  curves --sides d3rlpy --algorithms $ALGORITHMS
}

# ---------------------------------------------------------------------------------------------------- verbs

start() { # PARTS…
  if command -v nvidia-cuda-mps-control > /dev/null; then nvidia-cuda-mps-control -d || true; fi
  rm -f "$WORK"/done/* "$WORK"/logs/*
  stream speed "$0" do speed
  stream pools "$0" do pools
  local part name
  for part; do
    case $part in
      grid)
        for name in hopper walker2d halfcheetah; do
          stream "iql-$name-dw" "$0" do iql_grid "$name" dw dw-uniform,dw-aw dw-aw
          stream "iql-$name-plain" "$0" do iql_grid "$name" plain uniform,aw,best-source aw
        done
        ;;
      updates) for name in cql td3bc iql; do stream "updates-$name" "$0" do updates "$name" pools; done ;;
      ours)
        stream ours-1 "$0" do ours iql cql
        stream ours-2 "$0" do ours td3bc bc
        ;;
      peers) for name in $(seq "$PEERS"); do stream "peer-$name" nice -n 15 "$0" do peer; done ;;
      *) echo "a part must be one of $PARTS, got $part" >&2; exit 2 ;;
    esac
  done
}

all_done() {
  local log
  for log in "$WORK"/logs/*.log; do [ -e "$WORK/done/$(basename "$log" .log)" ] || return 1; done
}

wait_for() {
  local until=$((SECONDS + $1)) next=$SECONDS
  while [ $SECONDS -lt "$until" ] && ! all_done; do
    if [ $SECONDS -ge $next ]; then
      next=$((SECONDS + 60))
      echo "$(date +%T) results: $(find "$WORK" -path '*/results/*.json' | wc -l) runs, $(find "$WORK/curves" -name '*.json' 2> /dev/null | wc -l) curves"
    fi
    sleep 1
  done
}

gather() {
  local out=$1
  mkdir -p "$out"
  "$PYTHON" - "$WORK" "$out" << 'PYTHON'
import pathlib, sys, tarfile
work, out = map(pathlib.Path, sys.argv[1:])
wanted = [p for p in sorted(work.rglob("*")) if p.is_file() and (
    p.parent.name in ("results", "curves", "logs") and p.suffix in (".json", ".log")
    or p.name in ("speed.json", "metrics.jsonl", "returns.jsonl") or p.parent.parent.name == "work" and p.name == "config.json")]
part, packed = out / "results.part", out / "results.tar.gz"
with tarfile.open(part, "w:gz") as file:
    for path in wanted:
        file.add(path, path.relative_to(work))
part.replace(packed)
print(len(wanted), "files,", packed.stat().st_size, "bytes")
PYTHON
}

case ${1:-} in
  start)
    shift
    # shellcheck disable=SC2086
    [ $# -gt 0 ] || set -- $PARTS
    start "$@" ;;
  wait) wait_for "${2:?seconds}" ;;
  gather) gather "${2:?a folder}" ;;
  do) shift; "$@" ;;
  *) echo "say start, wait SECONDS or gather OUT" >&2; exit 2 ;;
esac
