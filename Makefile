# make train, make dashboard, make test, make notebooks, make bench, make gpu, make soak. docs/results.md lists the
# benchmarks. Each target creates the virtual environment and installs what it needs.
PYTHON ?= python3
CONSTRAINTS ?= -c constraints.txt
BIN := .venv/bin

.PHONY: train dashboard test lint notebooks gpu soak clean
.PHONY: bench bench-quick bench-time-to-loss bench-warmup bench-tricks bench-strategies bench-inference

train: .venv/installed
	$(BIN)/python experiment.py $(ARGS)

dashboard: .venv/installed-dashboard .venv/vendored
	@$(BIN)/python dashboard.py $(ARGS)

# Without the package index, the tests of real checkpoints are skipped; with CI set, they fail.
test: .venv/installed-dev .venv/vendored lint
	-$(BIN)/python -m tests.fetched
	$(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyrefly check --summary=none --min-severity error

# Saves the notebooks with their new pictures; `git checkout notebooks` restores them.
notebooks: .venv/installed-dev
	$(BIN)/jupyter execute --inplace notebooks/*.ipynb

bench: .venv/installed-bench
	$(BIN)/python -m benchmarks.throughput
	$(BIN)/python -m benchmarks.time_to_loss

bench-quick: .venv/installed-bench
	$(BIN)/python -m benchmarks.throughput --quick
	$(BIN)/python -m benchmarks.time_to_loss --seconds 5

bench-time-to-loss: .venv/installed-bench
	$(BIN)/python -m benchmarks.time_to_loss --seeds 3

bench-warmup bench-tricks bench-strategies: bench-%: .venv/installed-bench
	$(BIN)/python -m benchmarks.lists $* $(ARGS)

bench-inference: .venv/installed-export
	$(BIN)/python -m benchmarks.inference $(ARGS)

# All that only a GPU can show, in 12 minutes; ARGS=--dry-run takes the same steps with tiny shapes on a CPU.
gpu: .venv/installed-gpu
	$(BIN)/python -m benchmarks.gpu $(ARGS)

soak: .venv/installed-dev
	$(BIN)/python -m pytest -m slow
	$(BIN)/python -m benchmarks.soak $(ARGS)

clean:
	rm -rf .venv board/node_modules .pytest_cache .ruff_cache data/cache/compiled data/cache/compiled.filling

# An empty file marks a requirements file as installed. A newer requirements file is installed again. Python compiles a
# module when it is first imported: to compile all of them takes a quarter of a minute, and most are never used.
.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("Folio needs Python 3.11 or later: make PYTHON=python3.12 ...") if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python requirements.txt constraints.txt
	@echo "installing requirements.txt into .venv (minutes; on Linux several GB, because PyTorch comes with CUDA)"
	$(BIN)/python -m pip install --quiet --no-compile $(CONSTRAINTS) -r requirements.txt
	touch $@

.venv/installed-%: .venv/installed requirements-%.txt
	@echo "installing requirements-$*.txt"
	$(BIN)/python -m pip install --quiet --no-compile $(CONSTRAINTS) -r requirements-$*.txt
	touch $@

# The files that these include.
.venv/installed-bench: requirements-finetune.txt
.venv/installed-export: requirements-bench.txt requirements-finetune.txt
.venv/installed-gpu: requirements-bench.txt requirements-finetune.txt requirements-text.txt
.venv/installed-dev: $(wildcard requirements-*.txt)

# The dashboard's page uses these npm packages; without npm it loads the same files from CDNs.
.venv/vendored: .venv/bin/python board/package-lock.json
	@if (cd board && npm ci --ignore-scripts --silent); then touch $@; \
	else echo "npm was not found or failed: the dashboard's page will load its scripts from the internet"; fi
