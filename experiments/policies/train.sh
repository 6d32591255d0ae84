#!/usr/bin/env bash
# Trains the behaviour policies of all four environments on a machine with a GPU that can reach nothing.
#
#     OUT=folder experiments/policies/train.sh [SECONDS]        (default 545: it ends some 15 s later)
#
# Called again with the same $WORK it goes on where it stopped. $OUT gets a tar for each environment (curves and the
# snapshots nearest to what is wanted, actors only), log.jsonl with the rates, and train.log.
#
# Needs python3.12 with jax, optax, numpy and safetensors; the simulator comes from .wheels (not in git), made with
#     pip download --python-version 3.12 --only-binary=:all: --platform manylinux_2_28_x86_64 --platform any --no-deps \
#         -d .wheels mujoco==3.17.0 gymnasium==1.4.0 imageio packaging glfw cloudpickle farama-notifications \
#         typing-extensions absl-py etils pyopengl
# All runs learn in ONE process and program, since several processes take turns on a GPU. MODE=apart runs a process for
# each environment all the same.
set -euo pipefail
cd "$(dirname "$0")/../.."
limit=${1:-545}
WORK=${WORK:-/tmp/winnow-policies}
OUT=${OUT:-$WORK/out}
PYTHON=${PYTHON:-python3}
ENVS=${ENVS:-hopper halfcheetah walker2d ant}
SEEDS=${SEEDS:-0 1}
STEPS=${STEPS:-5000000}
PROCESSES=${PROCESSES:-15}
MODE=${MODE:-together}
MORE=${MORE:-} # further settings, say --evaluate-every 20000
mkdir -p "$WORK" "$OUT"

if [ ! -e "$WORK/site/.complete" ]; then
  for wheel in .wheels/*.whl; do "$PYTHON" -m zipfile -e "$wheel" "$WORK/site"; done
  touch "$WORK/site/.complete"
fi
export PYTHONPATH="$PWD/src:$WORK/site${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONUNBUFFERED=1 MUJOCO_GL=disable XLA_PYTHON_CLIENT_PREALLOCATE=false
export JAX_COMPILATION_CACHE_DIR="$WORK/cache" JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0.5

collect() { # folder, processes, environments…
  local folder=$1 processes=$2
  shift 2
  # The outer limit is for a run that hangs: its snapshots are on disk, and are packed below.
  # shellcheck disable=SC2086
  timeout $((limit + 20)) "$PYTHON" -m winnow.collect --env "$@" --seed $SEEDS --steps "$STEPS" \
    --out "$folder" --processes "$processes" --seconds "$limit" $MORE 2>&1 | tee -a "$folder.log"
}

failed=0
if [ "$MODE" = together ]; then
  # shellcheck disable=SC2086
  collect "$WORK/all" "$PROCESSES" $ENVS || failed=$?
else
  jobs=()
  for env in $ENVS; do
    collect "$WORK/$env" 4 "$env" &
    jobs+=($!)
  done
  for job in "${jobs[@]}"; do wait "$job" || failed=$?; done
fi

cat "$WORK"/*.log > "$OUT/train.log"
cat "$WORK"/*/log.jsonl > "$OUT/log.jsonl" || true
"$PYTHON" - "$WORK" "$OUT" $ENVS << 'PACK'
"""Of every run: its curve, the snapshots nearest to `medium` (35 to 60) and the best ones, as a tar an environment."""
import json
import sys
import tarfile
from pathlib import Path

work, out = Path(sys.argv[1]), Path(sys.argv[2])
for env in sys.argv[3:]:
    with tarfile.open(out / f"{env}.tar", "w") as tar:
        for curve in sorted(work.glob(f"*/{env}-*/curve.jsonl")):
            folder = curve.parent
            tar.add(curve, f"{folder.name}/curve.jsonl")
            points = [json.loads(line) for line in curve.read_text().splitlines()]
            medium = sorted(points, key=lambda p: abs(p["score"] - 45) + p["std"] / max(abs(p["mean"]), 1))[:3]
            best = sorted(points, key=lambda p: -p["score"])[:3]
            steady = max(points, key=lambda p: (p["mean"] - p["std"]))
            for level in ("medium", "expert"):  # what --until kept
                if (folder / f"{level}.safetensors").exists():
                    tar.add(folder / f"{level}.safetensors", f"{folder.name}/{level}.safetensors")
            for step in sorted({p["step"] for p in [*medium, *best, steady]}):
                tar.add(folder / f"{step:09d}.safetensors", f"{folder.name}/{step:09d}.safetensors")
            for kind, chosen in (("medium", medium[0]), ("best", best[0])):
                print(f"{folder.name} {kind}: step {chosen['step']:,}, {chosen['mean']:.0f} ± {chosen['std']:.0f}, "
                      f"score {chosen['score']:.1f}")
PACK
ls -l "$OUT"
exit "$failed"
