# make train · make test · make notebooks
# The virtual environment is made, and filled, when it is needed.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: train test lint notebooks bench-strategies clean

train: .venv/installed
	$(BIN)/python experiment.py $(ARGS)

test: .venv/installed-dev lint
	$(BIN)/python -m pytest

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

notebooks: .venv/installed-dev
	$(BIN)/jupyter execute --inplace notebooks/*.ipynb

bench-strategies: .venv/installed
	$(BIN)/python -m benchmarks.strategies $(ARGS)

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache

# An empty file says that a requirements file was installed; it is made anew when the file changes.
.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("Folio needs Python 3.11 or later: make PYTHON=python3.12 ...") if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python requirements.txt
	@echo "installing requirements.txt into .venv: minutes, on Linux some GB (PyTorch comes with CUDA)"
	$(BIN)/python -m pip install --quiet -r requirements.txt
	touch $@

.venv/installed-dev: .venv/installed requirements-dev.txt
	$(BIN)/python -m pip install --quiet -r requirements-dev.txt
	touch $@
