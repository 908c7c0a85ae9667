# Everything here creates what it needs: the virtual environment, the engines' own environments, the model folder.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
COMPILED := .venvs/compiled

# Tests that share the machine without harm (they mostly wait, so three at a time), and those that watch processes and the clock.
SIDE_BY_SIDE := tests/core tests/fuzz tests/plugin tests/reports tests/simulated tests/storage tests/test_import_direction.py
ALONE := tests/backends tests/cases tests/loadgen tests/servers tests/telemetry

.DEFAULT_GOAL := help
.PHONY: help setup scenarios test lint format compiled test-compiled engines test-engines bench clean

help:
	@echo "make scenarios      run the shipped scenarios on the embedded simulator and print a verdict"
	@echo "make test           lint, type-check and test"
	@echo "make test-compiled  the load engine's tests with the engine compiled (needs a C compiler)"
	@echo "make test-engines   the same product against real vLLM (CPU) and real Triton"
	@echo "make bench          the load engine beside its peers"
	@echo "make lint format clean"

setup: $(READY)

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

scenarios: $(READY)
	$(BIN)/pytest scenarios/

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: lint
	$(BIN)/pytest $(SIDE_BY_SIDE) --timeout=240 -n 3 -q
	$(BIN)/pytest $(ALONE) --timeout=240 -q

# The wheel is built from the source distribution, so that no compiled file is left among the sources.
compiled: $(COMPILED)/.ready

$(COMPILED)/.ready: $(READY) pyproject.toml $(wildcard pytest_inferslo/*.py pytest_inferslo/*/*.py)
	$(PYTHON) -m venv $(COMPILED)
	rm -rf $(COMPILED)/dist
	HATCH_BUILD_HOOKS_ENABLE=1 $(BIN)/python -m build --outdir $(COMPILED)/dist .
	wheel=$$(echo $(COMPILED)/dist/*.whl) && $(COMPILED)/bin/python -m pip install --quiet --upgrade "$$wheel[dev]" aiohttp
	@touch $@

# PYTHONSAFEPATH: what is installed is run, not the sources of this folder.
test-compiled: compiled
	PYTHONSAFEPATH=1 INFERSLO_TEST_ENGINE=compiled $(COMPILED)/bin/pytest tests/loadgen tests/fuzz --timeout=240 -q

engines: $(READY)
	bash .ci/install_engines.sh

test-engines: engines
	INFERSLO_VLLM_PYTHON=$(CURDIR)/.venvs/vllm/bin/python INFERSLO_TRITON_PYTHON=$(CURDIR)/.venvs/triton/bin/python \
		$(BIN)/pytest tests/engines -m engines --timeout=600

bench: compiled
	PYTHONSAFEPATH=1 PYTHONPATH=benchmarks $(COMPILED)/bin/python benchmarks/engine.py --plain $(BIN)/python

clean:
	rm -rf $(VENV) .venvs .inferslo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
