#!/usr/bin/env bash
# Winnow with the lowest versions that pyproject.toml allows: writes requirements/lowest.txt, installs it in a folder
# of its own (.lowest, about 6 GB: torch's builds of that time come with CUDA) and runs the tests given, or a fair part.
#
#     tools/lowest.sh [tests/...]
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3.11}
extras="d3rlpy dev onnx ray robotics tensorboard torch video wandb"
part="tests/data tests/commands tests/plug tests/bench tests/evaluation tests/collect tests/inspection tests/report
  tests/render tests/envs/test_robotics.py tests/training/test_training.py tests/algorithms/test_numpy_losses.py
  tests/weighters/test_numpy_weighters.py"

test -x .lowest/bin/uv || { "$python" -m venv .lowest && .lowest/bin/pip install --quiet uv; }
{
  echo "# Made by tools/lowest.sh for the extras $extras, with Python 3.11 on linux."
  # This pyparsing is the last without warnings about matplotlib's use of it, which pytest turns into errors.
  # shellcheck disable=SC2086
  echo 'pyparsing<3.3' | .lowest/bin/uv pip compile --quiet --resolution lowest-direct --python-version 3.11 \
    --constraint - --no-header --no-annotate pyproject.toml $(printf -- '--extra %s ' $extras)
} > .lowest/lowest.txt
mv .lowest/lowest.txt requirements/lowest.txt
.lowest/bin/uv pip install --quiet --python .lowest/bin/python -r requirements/lowest.txt
.lowest/bin/uv pip install --quiet --python .lowest/bin/python --no-deps --reinstall .
# shellcheck disable=SC2086
exec .lowest/bin/python -m pytest -n 2 --dist loadfile ${*:-$part}
