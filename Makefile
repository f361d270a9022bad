# Every target makes its own environment on first use. Variables:
#   PYTHON=python3        interpreter, 3.11 or newer, that the environment is made with
#   TORCH_INDEX=URL       package index to take torch from, for example that of a CPU-only build
#   WORKERS=auto          processes that the tests are spread over: one per core, four at most
#   ARGS=...              further arguments of `hymo demo` or pytest

PYTHON ?= python3
TORCH_INDEX ?=
WORKERS ?= auto
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
SOURCES := src tests $(wildcard benchmarks) docs/tools

.PHONY: help demo test drill lint types layers wheel docs docs-generate docs-test playground-test clean

help:
	@echo "make demo    train, evaluate and sample a small model on this machine's CPU"
	@echo "make test    run the tests"
	@echo "make drill   a job of two ranks is killed ten times and ends all the same"
	@echo "make lint    ruff: rules and format"
	@echo "make types   mypy --strict"
	@echo "make layers  check that imports only go down"
	@echo "make wheel   build the wheel and run its demo from an environment of its own"
	@echo "make docs    build the documentation into build/site; docs-generate writes its generated parts anew"
	@echo "make docs-test  the built documentation in a browser; needs node and chromium"
	@echo "make playground-test  the playground of hymo serve in a browser; part of docs-test"
	@echo "make clean   remove the environment, caches and builds (runs/ stays)"

demo: $(VENV)/.base
	$(BIN)/hymo demo $(ARGS)

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 4 --dist worksteal $(ARGS)

drill: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -s tests/integration/test_drill.py --run-heavy -k ten_kills

lint: $(VENV)/.dev
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

types: $(VENV)/.dev
	$(BIN)/mypy --strict src
	$(BIN)/mypy --strict -p docs.tools

layers: $(VENV)/.dev
	$(BIN)/lint-imports

wheel: $(VENV)/.dev
	rm -rf build dist && $(BIN)/python -m build --wheel --no-isolation --outdir dist .
	$(BIN)/python -m venv --clear dist/env
	dist/env/bin/python -m pip --disable-pip-version-check install -q -c constraints.txt dist/*.whl
	cd dist && env/bin/hymo config list && env/bin/hymo generate demo 'The SQLite ' && env/bin/hymo demo --short

# Built with Python alone: the labs' scripts, fonts and KaTeX are in the repository. `make docs-test` builds the scripts anew.
docs: $(VENV)/.docs
	$(BIN)/python -m docs.tools.generate --check
	$(BIN)/python -m docs.tools.stage
	$(BIN)/zensical build --strict --config-file mkdocs.yml
	$(BIN)/python -m docs.tools.check_site

docs-generate: $(VENV)/.docs
	$(BIN)/python -m docs.tools.generate

docs-test: docs
	@for tool in node npm; do command -v $$tool >/dev/null || \
	  { echo "error: make docs-test needs node 20 or newer, npm and chromium; $$tool is not there" >&2; exit 1; }; done
	cd docs/labs && npm install --no-package-lock && npm run types && npm test
	cd docs/labs && npx vite build --outDir ../../build/labs --emptyOutDir && diff -r ../../build/labs ../assets/labs
	cd docs/labs && node tests/browser.mjs
	cd docs/labs && PYTHON=$(abspath $(BIN))/python node tests/playground.mjs

playground-test: $(VENV)/.docs
	@for tool in node npm; do command -v $$tool >/dev/null || \
	  { echo "error: make playground-test needs node 20 or newer, npm and chromium; $$tool is not there" >&2; exit 1; }; done
	cd docs/labs && npm install --no-package-lock && PYTHON=$(abspath $(BIN))/python node tests/playground.mjs

clean:
	rm -rf $(VENV) build dist docs/labs/node_modules src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# torch alone comes from TORCH_INDEX, without its dependencies: such an index rarely has all of them in our versions.
define install
	$(if $(TORCH_INDEX),$(PIP) install -c constraints.txt --no-deps --index-url $(TORCH_INDEX) torch)
	$(PIP) install -c constraints.txt -e '$(1)'
endef

$(VENV)/.base: pyproject.toml constraints.txt | $(BIN)/python
	$(call install,.)
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(call install,.[dev])
	@touch $(VENV)/.base $@

$(VENV)/.docs: pyproject.toml constraints.txt | $(BIN)/python
	$(call install,.[docs])
	@touch $(VENV)/.base $@

$(BIN)/python:
	@for python in $(PYTHON) python3.13 python3.12 python3.11; do \
	  if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "making $(VENV) with $$($$python --version)"; \
	    $$python -m venv $(VENV) && exit 0; \
	    rm -rf $(VENV); \
	    echo "error: no environment could be made with $$python (Debian, Ubuntu: apt install python3-venv)" >&2; \
	    exit 1; \
	  fi; \
	done; \
	echo "error: no Python >= 3.11 found. Install one, or name it: make PYTHON=/path/to/python3.11 ..." >&2; \
	exit 1
