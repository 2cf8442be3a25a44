# One command each. Most of them first set up .venv, if pyproject.toml or constraints.txt changed.
PYTHON ?= python3
ENV ?= TorchHalfCheetah-v0
ARGS ?=
STEPS ?= 1e6
TORCH ?= 2.15.0
# Tests run in as many processes as there are cores, up to 4; WORKERS=0: in one, where -s and --pdb work.
WORKERS ?= logical

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet -c constraints.txt
PARALLEL := -n $(WORKERS) --maxprocesses 4 --dist worksteal

.PHONY: help setup train test slow libraries torch soak lint fix bench bench-gpu site wheel clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP)  ## create .venv and install the package, pinned by constraints.txt

# torch goes first, at its pinned version: resolving it together with open ranges can download several builds of it,
# gigabytes each.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) -e ".[dev,train,bench]"
	touch $@

train: $(STAMP)  ## train HalfCheetah for half a minute and score it in Gymnasium's own task (ENV=TorchAnt-v0, ARGS="--seed 1")
	$(BIN)/python -m torch_mjenvs train --env $(ENV) $(ARGS)

test: $(STAMP) lint  ## lint, types, and the fast tests
	$(BIN)/python -m pytest -q $(PARALLEL) $(ARGS)

slow: $(STAMP)  ## the slow tests
	$(BIN)/python -m pytest -q -m slow $(PARALLEL) $(ARGS)

# Tianshou and rl_games pin what the rest of the tests have newer: a virtual environment of their own, beside .venv.
libraries:  ## the tests of torch_mjenvs.adapters with all five libraries, in .venv-libraries
	test -x .venv-libraries/bin/python || $(PYTHON) -m venv .venv-libraries
	grep -vE '^(psutil|filelock|ipython|ipykernel)==' constraints.txt > .venv-libraries/constraints.txt
	.venv-libraries/bin/python -m pip install --quiet -c .venv-libraries/constraints.txt torch
	.venv-libraries/bin/python -m pip install --quiet -c .venv-libraries/constraints.txt -e ".[libraries,rl-games,tianshou]" pytest
	.venv-libraries/bin/python -m pytest -q -m "" tests/users/test_adapters_parity.py tests/users/test_adapters_training.py $(ARGS)

# PyPI's torch for Linux is the CUDA build, several gigabytes. What torch itself needs is not pinned.
torch:  ## the fast tests with another release of torch (TORCH=2.15.0), in .venv-torch-2.15.0
	test -x .venv-torch-$(TORCH)/bin/python || $(PYTHON) -m venv .venv-torch-$(TORCH)
	grep -vE '^(torch==|triton|nvidia-|cuda-)' constraints.txt > .venv-torch-$(TORCH)/constraints.txt
	.venv-torch-$(TORCH)/bin/python -m pip install --quiet -c .venv-torch-$(TORCH)/constraints.txt torch==$(TORCH)
	.venv-torch-$(TORCH)/bin/python -m pip install --quiet -c .venv-torch-$(TORCH)/constraints.txt torch==$(TORCH) -e ".[dev,train,bench]"
	.venv-torch-$(TORCH)/bin/python -m pytest -q $(PARALLEL) $(ARGS)

soak: $(STAMP)  ## long runs of every task with bad worlds injected (STEPS=1e6 in each of 22 cases), figures printed
	$(BIN)/python -m pytest -q -s -m "" tests/users/test_soak.py --soak-steps $(STEPS) $(ARGS)

lint: $(STAMP)  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fix: $(STAMP)  ## let ruff fix what it can, and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)  ## compile time and steps per second
	$(BIN)/python -m benchmarks $(ARGS)

bench-gpu: $(STAMP)  ## the same on a GPU, where there is one
	$(BIN)/python -m benchmarks.gpu $(ARGS)

site: $(STAMP)  ## build the documentation site into site/
	$(BIN)/mkdocs build --strict --quiet

wheel: $(STAMP)  ## build the wheel into dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean:  ## remove build products, not .venv
	rm -rf build dist runs site *.egg-info .pytest_cache .mypy_cache .ruff_cache
