# Every target sets itself up: it needs make and Python 3.11 to 3.13, nothing else, and no root.
# .venv is made once and again only when requirements.lock or pyproject.toml change.

SHELL := /bin/sh
PYTHONS ?= python3.13 python3.12 python3.11 python3
BIN := .venv/bin
# One more than there are processors, because tests also wait for processes and Spark. Each process collects all tests.
PROCESSES ?= $(shell cores=$$(getconf _NPROCESSORS_ONLN || echo 2); echo $$((cores < 7 ? cores + 1 : 8)))
FUZZ_SECONDS ?= 60
# Of the files of a commit, so that its examples can be tried before and after it is sent.
SEED ?= $(shell printf '%d' 0x$$(git rev-parse --short=8 'HEAD^{tree}' 2>/dev/null || echo 0))
EXPLORED ?= tests
# Tests of kernels that also run uncompiled in `make test`: all others do in test-long.
UNCOMPILED := $(foreach name,checksum commit_log_scan counting entry_checks entry_matches key_match queue_entries text,tests/kernels/test_$(name).py)
STAMP := .venv/.installed
DEMO := .venv/.demo
PIP := $(BIN)/python -m pip install -q --no-input --disable-pip-version-check --no-compile
UV := if [ -x $(BIN)/uv ]; then install='$(BIN)/uv pip install -q --python $(BIN)/python'; else install='$(PIP)'; fi; $$install
LINT := $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports && $(BIN)/python -m tests.prose
PYTEST := $(BIN)/python -m pytest -q -n $(PROCESSES) --no-loadscope-reorder

# Tests start commands by the hundred: each would compile every module anew where this is set.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test check lint coverage durations test-long test-explore test-sample test-slow test-crash mutants test-cluster test-agreement test-truth test-truth-sample growth test-lakes test-attack test-storm test-clients test-buckets test-browser test-spark-min test-connect test-dist kernels dist docs bench fuzz lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

demo: $(DEMO) ## rebuild and search a store that a real broker wrote
	@$(BIN)/python examples/demo.py

# Deterministic: properties try the same examples everywhere. What takes longer is in test-long.
test: $(STAMP) ## the tests: required before a change goes in, with lint
	@failed=; $(PYTEST) -m "not slow and not long" || failed=1; \
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -q -m "not slow and not long" $(UNCOMPILED) || failed=1; \
	test -z "$$failed"

check: lint ## what can be known within a minute: lint, types, the fast tests
	$(PYTEST) -m "fast and not slow and not long"

test-long: $(STAMP) ## the tests that take more than a second each, and all kernels uncompiled
	$(PYTEST) -m "long and not slow"
	NUMBA_DISABLE_JIT=1 $(PYTEST) tests/kernels

test-explore: $(STAMP) ## all properties with other examples, those of SEED (the seed of this commit unless given)
	@echo "make: test-explore SEED=$(SEED)"
	REPUT_TESTS=thorough $(PYTEST) -m "hypothesis and not slow" --hypothesis-seed=$(SEED) $(EXPLORED)

test-sample: $(STAMP) ## one of 40 slow cases of all tests, those of SEED (the seed of this commit unless given)
	@echo "make: test-sample SEED=$(SEED)"
	$(PYTEST) -m sampled --hypothesis-seed=$(SEED)

durations: $(STAMP) ## measure all tests that are not slow and list the long ones in tests/long.txt (Linux)
	@mkdir -p build
	$(PYTEST) --junitxml build/durations.xml || true
	$(BIN)/python -m tests.durations build/durations.xml

coverage: $(STAMP) ## the tests once more, with the lines that they reach: at least 90 % outside the kernels
	COVERAGE_CORE=sysmon $(PYTEST) --cov --cov-report=term:skip-covered

lint: $(STAMP) ## style, types, import order and prose
	$(LINT)

test-slow: $(STAMP) ## the tests that take minutes
	REPUT_TESTS=thorough $(PYTEST) -m "slow or hypothesis"

test-crash: $(STAMP) ## kill and cut the power of stores that are being written, hundreds of times
	REPUT_TESTS=thorough $(PYTEST) -m "slow or hypothesis" tests/crash

mutants: $(STAMP) ## change the core in 200 small ways; each change must fail a test or be explained (resumes)
	mkdir -p build/mutants
	nice -n 15 $(BIN)/python -m tests.mutants

test-agreement: $(STAMP) ## every command on hundreds of damaged stores: all say the same, or state the same doubt
	$(PYTEST) -m "slow or not slow" tests/store/test_agreement.py

test-truth: $(STAMP) ## ask every reading path about damaged stores whose messages are known, 50,000 combinations
	$(BIN)/python -m pytest -q -s -m "slow or not slow" tests/truth

test-truth-sample: $(STAMP) ## 20 scenes of test-truth, those of SEED (the seed of this commit unless given)
	@echo "make: test-truth-sample SEED=$(SEED)"
	$(BIN)/python -m tests.truth --seed $(SEED) --scenes 20 --processes 2

growth: $(STAMP) ## how the cost of each operation grows with each size of a store, by counts (20 minutes)
	$(BIN)/python -m tests.growth.measure
	$(BIN)/python -m tests.growth.simulated

test-cluster: $(STAMP) ## rebuild 200 times on a Spark cluster whose executors fail, stop and leave (Linux)
	REPUT_CLUSTER_RUNS=200 $(BIN)/python -m pytest -q -m "slow or not slow" tests/spark/test_faults.py

test-lakes: $(STAMP) ## kill 200 exports into buckets at every step in turn, three formats, with servers that fail; read tables with DuckDB from PyPI (Linux)
	$(PIP) --no-deps --upgrade --target build/readers duckdb==1.5.5 $(foreach name,avro delta httpfs iceberg,duckdb-extension-$(name)==1.5.5)
	REPUT_READERS=required $(BIN)/python -m pytest -q -m "slow or not slow" tests/remote/test_lake_readers.py
	REPUT_KILLS=67 $(BIN)/python -m pytest -q -s -m "slow or not slow" tests/remote/test_lake_kills.py

test-attack: $(STAMP) ## hostile logs, trees, indexes and users, with fixed seeds (SECURITY.md)
	$(BIN)/python -m pytest -m "attack and not slow" --hypothesis-seed=1

test-storm: $(STAMP) ## hostile clients against `reput serve` with little memory for 30 minutes (Linux)
	REPUT_STORM_S=1800 $(BIN)/python -m pytest -q tests/remoting/test_storm.py

test-clients: $(STAMP) ## real RocketMQ clients, from PyPI and npm, against `reput serve` (Linux)
	$(PIP) --no-deps --upgrade --target build/clients/python rocketmq==0.4.4
	npm install --silent --no-audit --no-fund --prefix build/clients/node ali-ons@3.12.0
	REPUT_CLIENTS=required $(BIN)/python -m pytest -q -m "slow or not slow" tests/remoting/test_clients.py

test-buckets: $(STAMP) ## conditional writes to buckets, Azure's emulator from npm among them
	npm install --silent --no-audit --no-fund --prefix build/buckets azurite@3.35.0
	REPUT_BUCKETS=required $(BIN)/python -m pytest -q -m "slow or not slow" tests/remote/test_object_store.py

test-browser: $(STAMP) ## drive all pages in headless Chromium; screenshots in build/browser
	$(PIP) uv
	$(BIN)/uv pip install -q --python $(BIN)/python --group browser
	mkdir -p build/browser
	npm install --silent --no-audit --no-fund --no-save --prefix build/browser axe-core@4
	REPUT_BROWSER=required $(BIN)/python -m pytest -q -m "slow or not slow" tests/console/test_browser.py tests/cli/test_report_browser.py

# Beside .venv, whose newer PySpark it hides.
SPARK_MIN := pyspark-4.1.0
OLD_SPARK := build/spark-min/$(SPARK_MIN).dist-info

$(OLD_SPARK): | $(STAMP)
	rm -rf build/spark-min
	$(PIP) --no-deps --target build/spark-min $(subst -,==,$(SPARK_MIN))

test-spark-min: $(STAMP) $(OLD_SPARK) ## the oldest Spark that is supported: the table, streams, look-ups, exports
	PYTHONPATH=$(CURDIR)/build/spark-min $(BIN)/python -m pytest -q -m spark_min tests/spark

# What PySpark's own client of Spark Connect needs besides PySpark.
CONNECT := grpcio==1.85.1 grpcio-status==1.85.1 googleapis-common-protos==1.76.0 protobuf==7.36.2 zstandard==0.25.0

test-connect: $(STAMP) ## Spark Connect: a server without reput, and everything that runs on it (Linux)
	$(PIP) --no-deps --upgrade --target build/connect $(CONNECT)
	REPUT_CONNECT=required $(BIN)/python -m pytest -q -m "slow or not slow" tests/spark/test_connect.py

kernels: $(DEMO) ## compile the kernels that the wheel ships, for this Python
	$(BIN)/python packaging/ship_kernels.py

dist: $(STAMP) kernels ## build the wheel with compiled kernels, the slim wheel and the sdist in dist
	rm -rf dist
	$(BIN)/python -m hatchling build
	cd packaging/slim && ../../$(BIN)/python -m hatchling build -t wheel -d ../../dist

test-dist: dist ## install the wheels in empty environments and run the README's first commands
	$(BIN)/python -m pytest -m "slow or not slow" tests/test_dist.py

docs: $(STAMP) ## build the pages as a site in build/site; every link is checked
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(STAMP) ## measure, as a table and as JSON in benchmarks/results
	$(BIN)/python -m benchmarks

fuzz: $(STAMP) ## feed mutated stores to the readers (Linux)
	$(PIP) uv
	$(BIN)/uv pip install -q --python $(BIN)/python --group fuzz
	$(BIN)/python -m fuzz --seconds $(FUZZ_SECONDS)

lock: $(STAMP) ## raise requirements.lock to the newest versions that pyproject.toml allows
	$(PIP) uv
	$(BIN)/uv pip compile -q --upgrade --universal --python-version 3.11 \
		--all-extras --group dev --generate-hashes --no-header --no-annotate -o requirements.lock pyproject.toml
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --extra spark --extra serve --group build -c requirements.lock \
		--generate-hashes --no-header --no-annotate -o requirements-demo.lock pyproject.toml

clean: ## remove .venv and what the tools left behind
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# What `make demo` runs with; `make lock` keeps its versions those of requirements.lock.
$(DEMO): requirements-demo.lock pyproject.toml
	@$(VENV)
	@echo "make: installing what the demo needs into .venv, once (some 500 MB to fetch)"
	@$(UV) --require-hashes -r requirements-demo.lock
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(STAMP): requirements.lock pyproject.toml
	@$(VENV)
	@echo "make: installing into .venv, once (some 650 MB to fetch)"
	@$(UV) --require-hashes -r requirements.lock
	@$(PIP) --no-deps --no-build-isolation -e .
	@echo "make: compiling the kernels and the tests, once"
	@$(BIN)/python -m pytest -q --collect-only -p no:cacheprovider >/dev/null 2>&1 & $(BIN)/reput warm-up; result=$$?; wait; exit $$result
	@touch $(DEMO) $@

# A candidate must run and be of a version that the lock file serves: a name on the PATH proves neither.
# uv installs in a third of pip's time. Where it cannot be had, pip does.
define VENV
python=; \
for candidate in $(BIN)/python $(PYTHONS); do \
	if $$candidate -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
		</dev/null >/dev/null 2>&1; then python=$$candidate; break; fi; \
done; \
if [ -z "$$python" ]; then \
	echo "make: reput needs Python 3.11, 3.12 or 3.13 on the PATH: install one, or run make PYTHONS=/path/to/python3 $(MAKECMDGOALS)" >&2; exit 1; \
fi; \
if [ $$python != $(BIN)/python ] || ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	if ! $$python -c 'import ensurepip, venv' >/dev/null 2>&1; then \
		echo "make: $$python cannot make virtual environments: install its venv package (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; \
	fi; \
	$$python -m venv --clear .venv; \
fi; \
$(BIN)/uv --version >/dev/null 2>&1 || $(PIP) uv || true
endef
