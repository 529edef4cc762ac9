# Two commands do everything on a fresh machine: `make demo` and `make test`.
# Both set up `.venv` first; the second time that takes no time.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The newest supported Python at hand, 3.11 first: it is the tested one.
PYTHON ?= $(firstword $(foreach v,3.11 3.12 3.13,$(shell command -v python$(v) 2>/dev/null)) python3)

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint unit bench clean

help:  ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

setup: $(STAMP)  ## create .venv and install everything, system libraries included

demo: setup  ## run the quickstart and say where its figures lie
	$(BIN)/testbed run configs/quickstart.yaml

test: setup lint unit  ## all checks and the whole test suite

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: setup
	$(BIN)/python -m pytest -q --doctest-modules testbed bdd100k_tools
	$(BIN)/python -m pytest

bench: setup  ## print the figures behind the claims (hours)
	@for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

clean:  ## remove the environment and caches; results stay
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; name one with: make PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
		{ test "$$(id -u)" = 0 && apt-get update && apt-get install -y --no-install-recommends python3-venv \
		&& $(PYTHON) -m venv --clear $(VENV); } || \
		{ echo "cannot create $(VENV); on Debian or Ubuntu: sudo apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,yolo,ray]'
	$(BIN)/testbed doctor --fix
	@touch $@
