# make setup | demo | test | check. Nothing but Python 3.11 and make is needed before any of them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
TESTS  ?= tests
# Two test processes with one thread each: faster for small tensors than competing threads.
TEST   := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

.PHONY: setup demo test test-slow check format clean

setup: $(VENV)/.installed

# torch comes first and pinned: an open range would fetch gigabytes of CUDA libraries onto a CPU machine.
$(VENV)/.installed: pyproject.toml requirements.lock
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	touch $@

demo: setup
	$(BIN)/macaron demo

test: setup
	$(TEST) $(TESTS)

test-slow: setup
	$(TEST) -m slow $(TESTS)

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
