# Every target does its own set-up: the virtual environment is made on first use and refreshed when pyproject.toml changes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FAMILY ?= foundation
SIZE ?= small
FITS ?= 5000
MESSAGES ?= 100000
FILES ?= 5000
SCHEDULES ?= 100
MOMENTS ?= 20
SEED ?= 0
# Longest first, so that two at a time end at about the same time.
TABLES ?= foundation statistical consensus personalized files exactness privacy security daily engines graph robust
MINUTES ?= 90
# Tests in several processes; conftest.py says which groups begin first.  More processes than two cores, because federations wait a lot.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest
SPREAD := --dist loadgroup --no-loadscope-reorder
# Else every process that a test starts compiles the whole package again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo test test-faults test-stops lint fuzz attack results tables papers bench big-files dist clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/demo.stamp: pyproject.toml src/eigenpact/release.py
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/test.stamp: pyproject.toml src/eigenpact/release.py
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[cells,dask,export,fast,flower,genotypes,mpi,nvflare,pandas,private,test,zarr]'
	@touch $@ $(VENV)/demo.stamp

demo: $(VENV)/demo.stamp ## joint PCA of ten sites of handwritten digits, by every solver, with a picture
	$(BIN)/eigenpact demo

lint: $(VENV)/test.stamp ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint ## lint, then all tests but the slow and the violent ones, on two cores
	$(PYTEST) -n 3 $(SPREAD) -m "not faults and not paper"

test-faults: $(VENV)/test.stamp ## tests that kill processes, wait for timeouts or follow a page through a whole federation
	$(PYTEST) tests -n 4 $(SPREAD) -m "faults and not crowded"
	$(PYTEST) tests -m "faults and crowded"

test-stops: $(VENV)/test.stamp ## Ctrl-C at 20 moments of every command of a federation (MOMENTS=20)
	OMP_NUM_THREADS=1 EIGENPACT_MOMENTS=$(MOMENTS) $(BIN)/pytest tests/cli/test_daily_life.py -m faults

fuzz: $(VENV)/test.stamp ## hard problems for every solver, messages for both ends, files for every reader (FITS=5000 MESSAGES=100000 FILES=5000 SEED=0)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz.messages --messages $(MESSAGES) --seed $(SEED)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz.run --fits $(FITS) --seed $(SEED)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz.files --files $(FILES) --seed $(SEED)

attack: $(VENV)/test.stamp ## our own hostile coordinator, sites, spoofer and schedules, at full length, over an hour (SCHEDULES=0 leaves out the longest part; PAGE=1 writes docs/results/security.md)
	OMP_NUM_THREADS=1 SCHEDULES=$(SCHEDULES) $(BIN)/python -m benchmarks.results security --size paper $(if $(PAGE),--page)

results: $(VENV)/test.stamp ## print a results table with measured numbers (FAMILY=foundation SIZE=small|paper; PAGE=1 writes docs/results/FAMILY.md)
	$(BIN)/python -m benchmarks.results $(FAMILY) --size $(SIZE) $(if $(PAGE),--page)

tables: $(addprefix table-,$(TABLES)) ## the small results tables that CI prints (make -j2 -O tables runs two at a time)

table-%: $(VENV)/test.stamp
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.results $* --size small

papers: $(VENV)/test.stamp ## every table and figure of the papers that fits in MINUTES=90, and a page for each paper (ONLY="faps-table4" for some)
	$(BIN)/python -m benchmarks.papers $(ONLY) --minutes $(MINUTES)

$(VENV)/bench.stamp: $(VENV)/test.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	@touch $@

bench: $(VENV)/bench.stamp ## time the runtime, and fits beside other packages' in the same run; writes docs/results/speed.md
	$(BIN)/python -m benchmarks.overhead
	$(BIN)/python -m benchmarks.results speed --size paper --page

big-files: $(VENV)/test.stamp ## fit files larger than --memory 512MB (SIZE=small for 200 MB, paper for a CSV of 8 GB and a bed of 4 GB)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.big_files --size $(SIZE)

dist: $(VENV)/test.stamp ## build the wheel and the sdist, into dist/
	$(BIN)/python -m build --no-isolation

clean: ## remove the virtual environment and what tests left
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis eigenpact-demo
