# `make demo` and `make test` alone do all their own set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2
GPU_WORKERS ?= 4
# Where pytest is given, such as `make test-gpu PYTEST="python3 -m pytest"`, nothing is installed.
ifeq ($(origin PYTEST), undefined)
PYTEST := $(BIN)/python -m pytest
READY := install
endif

.PHONY: install demo test test-gpu check format bench build release-check clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .[all,dev]
	touch $@

demo: install
	$(BIN)/dragoman demo

test: $(READY)
	@.ci/system-packages
	$(PYTEST) -n $(WORKERS) $(TESTS)

# Training first: its tests take longest.
GPU_TESTS = $(shell grep --recursive --files-with-matches --include='test_*.py' 'mark\.gpu' tests | sort --reverse)

test-gpu: $(READY)
	$(PYTEST) -m gpu -n $(GPU_WORKERS) $(GPU_TESTS)

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install
	$(BIN)/python -m benchmarks.prepare

# The source archive and the wheel that is made from it, in dist/.
build: install
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist
	$(BIN)/python -m twine check --strict dist/*

# Before a release, and for its tag: make release-check TAG=v1.2.0
release-check: build
	$(BIN)/python .ci/release.py check $(TAG)

clean:
	rm -rf dist $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
