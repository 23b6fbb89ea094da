# Two commands do everything: `make train` and `make test`. Both create .venv on their first run.
PYTHON ?= python3
BIN := .venv/bin
export OMP_WAIT_POLICY ?= PASSIVE

INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e

.PHONY: train test test-vllm bench clean

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) .
	touch $@

.venv/installed-dev: .venv/installed
	$(INSTALL) ".[dev]"
	touch $@

train: .venv/installed
	$(BIN)/scalerl-mini train --out runs/default --overwrite

test: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2

test-vllm:
	PYTHON=$(PYTHON) .ci/vllm

bench: .venv/installed-dev
	$(BIN)/python -m tests.bench

clean:
	rm -rf .venv .venv-vllm build *.egg-info
