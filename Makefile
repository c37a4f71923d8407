# Every target sets itself up: it needs make and Python 3.11 to 3.13, nothing else, and no root.
# .venv is made once and again only when requirements.lock or pyproject.toml change.

SHELL := /bin/sh
PYTHONS ?= python3.13 python3.12 python3.11 python3
BIN := .venv/bin
STAMP := .venv/.installed
PIP := $(BIN)/python -m pip install -q --no-input --disable-pip-version-check

.PHONY: help demo test lint test-slow test-crash bench fuzz lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

demo: $(STAMP) ## rebuild and search a store that a real broker wrote
	@$(BIN)/python examples/demo.py

test: lint ## everything that must hold before a change goes in
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -q tests/kernels
	$(BIN)/python -m pytest

lint: $(STAMP) ## style, types and import order
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test-slow: $(STAMP) ## the tests that take minutes
	$(BIN)/python -m pytest -m slow

test-crash: $(STAMP) ## kill and cut the power of stores that are being written, hundreds of times
	$(BIN)/python -m pytest -m slow tests/crash

bench: $(STAMP) ## measure, as a table and as JSON in benchmarks/results
	$(BIN)/python -m benchmarks

fuzz: $(STAMP) ## feed mutated stores to the readers (Linux)
	$(PIP) --no-build-isolation -e '.[fuzz]'
	$(BIN)/python -m fuzz

lock: $(STAMP) ## raise requirements.lock to the newest versions that pyproject.toml allows
	$(PIP) uv
	$(BIN)/uv pip compile -q --upgrade --universal --python-version 3.11 --extra dev \
		--generate-hashes --no-header --no-annotate -o requirements.lock pyproject.toml

clean: ## remove .venv and what the tools left behind
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# A candidate must run and be of a version that the lock file serves: a name on the PATH proves neither.
$(STAMP): requirements.lock pyproject.toml
	@python=; \
	for candidate in $(BIN)/python $(PYTHONS); do \
		if $$candidate -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
			</dev/null >/dev/null 2>&1; then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
		echo "make: reput needs Python 3.11, 3.12 or 3.13 on the PATH: install one, or say make PYTHONS=/path/to/python3 $(MAKECMDGOALS)" >&2; exit 1; \
	fi; \
	if [ $$python != $(BIN)/python ] || ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
		if ! $$python -c 'import ensurepip, venv' >/dev/null 2>&1; then \
			echo "make: $$python cannot make virtual environments: install its venv package (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; \
		fi; \
		$$python -m venv --clear .venv; \
	fi
	@echo "make: installing into .venv, once (some 600 MB to fetch)"
	@$(PIP) --require-hashes -r requirements.lock
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@
