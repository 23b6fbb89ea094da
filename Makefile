# Two commands do everything: `make train` and `make test`. Both create .venv on their first run.
PYTHON ?= python3
BIN := .venv/bin
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: train test install clean

install: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

train: install
	$(BIN)/scalerl-mini train --out runs/default --overwrite

test: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2

clean:
	rm -rf .venv build *.egg-info
