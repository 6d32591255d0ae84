# make install   .venv with winnow and everything the tests need
# make demo      the main job, from nothing to a page with a table and pictures (two minutes on two cores)
# make test      ruff, pyright and all tests, against the installed package
# make lint      ruff and pyright alone
# make soak      faults by the dozen in every command and hostile files by the thousand, counted in results/trust (three quarters of an hour)
# make docs      the docs site, in site/ (open site/index.html)
# make lock      requirements/ci.txt anew, from what is installed
# make lowest    a part of the tests with the lowest versions that are allowed
# make bench     speed against peers and against the limit, as ratios
.PHONY: install demo test soak lint format docs lock lowest bench clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

install: $(STAMP)

# Everything but winnow itself: remade only when the list of dependencies changes. torch is pinned and comes first, or
# pip would take the newest build with several GB of CUDA libraries.
$(VENV)/.dependencies: pyproject.toml Makefile
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "winnow needs Python 3.11 or newer: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/pip install --quiet torch==2.13.0
	$(BIN)/pip install --quiet '.[d3rlpy,dev,onnx,ray,robotics,tensorboard,torch,wandb]'
	touch $@

# The package itself, installed (not linked): the tests see what a user gets.
$(STAMP): $(VENV)/.dependencies README.md $(shell find src -type f -not -name '*.pyc')
	$(BIN)/pip install --quiet --no-deps --force-reinstall .
	touch $@

demo: install
	$(BIN)/winnow demo --out demo

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: lint
	$(BIN)/python -m pytest -n 2 --dist loadfile

soak: install
	$(BIN)/python tests/faults/soak.py --out results/trust/soak.json
	$(BIN)/python tests/hostile/soak.py --minutes 10

docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet --site-dir site

lock: install
	$(BIN)/python tools/lock.py d3rlpy dev onnx ray robotics tensorboard torch wandb

lowest:
	tools/lowest.sh

bench: install
	$(BIN)/python benchmarks/cpu.py

clean:
	rm -rf $(VENV) demo dist build site
