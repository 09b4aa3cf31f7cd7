# Every command of the project. CONTRIBUTING.md lists what stands behind each,
# for readers without make.

PYTHON ?= python3
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
PORT ?= 8000
# One process per core; each loads torch. A file's tests stay together.
PYTEST_ARGS ?= --numprocesses=auto --maxprocesses=4 --dist=loadfile

BIN := .venv/bin
READY := .venv/.ready
TORCH := $(shell grep '^torch==' constraints.txt)
CHECKED := code tests tools book benchmarks
SOURCES := $(shell find code -type f \( -name '*.py' -o -name '*.js' \) | sort)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup browser test test-browser gpu-check lint format notebooks figure-data book serve check hooks clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The compile cards need NVIDIA's compiler, which exists as wheels for Linux on
# x86-64. Elsewhere, and with COMPILER= on the command line, their tests skip.
COMPILER ?= $(if $(filter Linux-x86_64,$(shell uname -sm | tr ' ' -)),.venv-compiler)
COMPILER_READY := $(COMPILER:%=%/.ready)
USE_COMPILER := $(COMPILER:%=ATTENTION_LAB_COMPILER_PYTHON=$(CURDIR)/%/bin/python)

# The figures are tested in Debian's or another chromium, driven by node 20 or
# newer. Where either is missing, and with BROWSER= on the command line, those
# tests skip and say why.
BROWSER ?= $(if $(and $(shell command -v npm),$(shell command -v chromium chromium-browser google-chrome)),node_modules)
BROWSER_READY := $(BROWSER:%=%/.ready)

setup: $(READY)  ## make .venv with everything in it (once; again when a version changes)

# torch comes first and from its own index: there it is the CPU build, ten times
# smaller than the default one. Its dependencies follow, pinned, with the rest.
$(READY): pyproject.toml requirements.txt constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-deps --retries 0 --timeout 20 --index-url $(TORCH_INDEX) "$(TORCH)" \
	  || $(BIN)/python -m pip install --quiet "$(TORCH)" -c constraints.txt
	$(BIN)/python -m pip install --quiet -r requirements.txt -c constraints.txt
	@touch $@

$(COMPILER_READY): requirements-compiler.txt constraints.txt
	$(PYTHON) -m venv $(COMPILER)
	$(COMPILER)/bin/python -m pip install --quiet -r $< -c constraints.txt
	@touch $@

node_modules/.ready: package.json package-lock.json
	npm ci --no-audit --no-fund
	@touch $@

browser: node_modules/.ready  ## install what the browser tests need (npm; 14 MB)

test: $(READY) $(COMPILER_READY)  ## run the tests
	$(USE_COMPILER) $(BIN)/python -m pytest --ignore=tests/browser $(PYTEST_ARGS)

# Not beside other tests: it measures how fast the figures answer. With
# JUPYTERLAB=…/bin/jupyter-lab also in JupyterLab 4, from any environment that
# has ipywidgets 8; without it that test skips and says so.
JUPYTERLAB ?=
test-browser: $(READY) $(BROWSER_READY)  ## try every figure in a browser, also on the built site
	$(JUPYTERLAB:%=ATTENTION_LAB_JUPYTERLAB=%) $(BIN)/python -m pytest tests/browser

# .venv has torch for CPUs only: this takes a Python whose torch sees the GPU.
GPU_PYTHON ?= $(PYTHON)
gpu-check:  ## try every kernel on this machine's GPU: results, speed, memory (6 min)
	PYTHONPATH=code $(GPU_PYTHON) benchmarks/gpu_check.py $(GPU_CHECK_ARGS)

lint: $(READY)  ## check style, spelling, and that the notebooks are up to date
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/codespell $(CHECKED) *.md .github _config.yml _toc.yml Makefile
	$(BIN)/python tools/notebooks.py --check

format: $(READY)  ## repair the style of code, tests, tools and chapter cells
	$(BIN)/ruff check --fix --exit-zero --quiet code tests tools book/_ext
	$(BIN)/ruff format code tests tools book/_ext
	$(BIN)/python tools/format_chapters.py
	$(BIN)/python tools/notebooks.py

notebooks: $(READY)  ## write book/*.ipynb from book/*.md
	$(BIN)/python tools/notebooks.py

figure-data: $(READY)  ## record the committed data of the figures again
	$(BIN)/python tools/figure_data.py

# Every chapter runs once, here; Jupyter Book finds the outputs in its cache.
# Three traps: the cache of executed pages does not notice changes under code/,
# so it goes when they change; an unchanged page would not repeat its warnings,
# hence --all; and pages that no longer exist would stay. A page has no kernel:
# ATTENTION_LAB_STATIC keeps controls that need one out of it.
book: notebooks  ## run every chapter, build the site into _build/html, check it
	@mkdir -p _build
	@cat $(SOURCES) constraints.txt | cksum > _build/code.now
	@cmp -s _build/code.now _build/code.cached || rm -rf _build/.jupyter_cache
	@mv _build/code.now _build/code.cached
	@rm -rf _build/html
	$(BIN)/python tools/run_chapters.py
	ATTENTION_LAB_STATIC=1 $(BIN)/jupyter-book build . --all -W -n --keep-going
	$(BIN)/python tools/check_site.py

serve:  ## show the built site on this machine: make serve PORT=8000
	$(BIN)/python -m http.server $(PORT) --bind 127.0.0.1 --directory _build/html

check: lint test book test-browser  ## all that has to be green; exactly what CI runs

hooks: $(READY)  ## run the cheap checks before each commit
	$(BIN)/pre-commit install

clean:  ## remove what was built, and the environment
	rm -rf _build .venv .venv-compiler .pytest_cache .ruff_cache code/*.egg-info
	find code tests tools book -name __pycache__ -type d -exec rm -rf {} +
