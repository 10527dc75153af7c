# Everything that CI and a developer run. `make help` lists it.
#
# The two that matter, on a machine with make and Python 3.11 or newer and nothing else:
#   make demo     a newsroom of agents, one of which is killed in mid-sentence
#   make test     what CI runs
# Both make .venv first, install into it, and leave a stamp there, so that the next run starts at once and offline.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PACKAGES := runtime fibers agents
# Folders that hold Python now: mypy refuses one without.
CODE := $(PACKAGES) $(foreach d,tests benchmarks examples,$(if $(wildcard $d/*.py),$d))
# PYTHON=/path/to/python chooses the interpreter; otherwise the first of these that is new enough and can make a venv.
PYTHON ?=
CANDIDATES := $(if $(PYTHON),$(PYTHON),python3 python3.13 python3.12 python3.11 python3.14)
# Arguments for pytest: make test ARGS="-k alarms -x"
ARGS ?=

# Progress on one line; the text has no comma (make would split it) and no quote.
say = @printf '==> %s\n' '$(1)'
# Leaves out the line with which basedpyright says that there is nothing to say.
unless-none = { grep -v '^0 errors, 0 warnings, 0 notes' || true; }
usable = import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: install
install: $(STAMP) ## make .venv and install perdure with all its tools into it

$(STAMP): pyproject.toml constraints.txt
	@if ! $(BIN)/python -c '$(usable)' >/dev/null 2>&1; then \
	  found=; for candidate in $(CANDIDATES); do \
	    if "$$candidate" -c '$(usable)' >/dev/null 2>&1; then found=$$candidate; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then \
	    echo 'perdure needs Python 3.11 or newer with its venv module, and none of these is one: $(CANDIDATES).'; \
	    echo 'Install one (on Debian and Ubuntu: apt-get install python3 python3-venv),'; \
	    echo 'or name one: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)'; \
	    exit 1; \
	  fi >&2; \
	  printf '==> %s\n' "1/3 making $(VENV) with $$("$$found" --version)"; \
	  "$$found" -m venv --clear $(VENV); \
	fi
	$(call say,2/3 fetching Ray and DuckDB and the tools into $(VENV): some 300 MB and one to three minutes - once)
	@$(PIP) --constraint constraints.txt hatchling
	@$(PIP) --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	$(call say,3/3 installed: $(BIN)/perdure is the command)
	@touch $@

.PHONY: demo
demo: $(STAMP) ## run the newsroom: four agents, one of them killed and recovered
	$(call say,starting a local Ray and the newsroom (examples/newsroom.py))
	@$(BIN)/python examples/newsroom.py $(ARGS)

.PHONY: test
test: lint typecheck ## all that CI runs, fast checks first: lint, typecheck, then every test
	$(call say,pytest: the whole suite)
	@$(BIN)/python -m pytest $(ARGS)

.PHONY: lint
lint: $(STAMP) ## ruff: form and lint
	$(call say,ruff format --check)
	@$(BIN)/ruff format --check --quiet .
	$(call say,ruff check)
	@$(BIN)/ruff check --quiet .

.PHONY: typecheck
typecheck: $(STAMP) ## mypy and basedpyright: strict on the packages, plain on the rest
	$(call say,mypy)
	@$(BIN)/mypy --no-error-summary --disable-error-code annotation-unchecked $(CODE)
	$(call say,basedpyright)
	@$(BIN)/basedpyright --pythonpath $(BIN)/python | $(unless-none)
	@$(BIN)/basedpyright --pythonpath $(BIN)/python --project tests/pyrightconfig.json | $(unless-none)

.PHONY: check
check: lint typecheck ## what to run before a commit: lint, typecheck, the tests of the house
	$(call say,pytest: the house)
	@$(BIN)/python -m pytest -q -m 'not slow' tests/house

.PHONY: format
format: $(STAMP) ## let ruff rewrite the form and mend what it can
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

.PHONY: bench-quick
bench-quick: $(STAMP) ## every benchmark once with few rounds; each prints one JSON object last
	@ran=0; for file in benchmarks/bench_*.py; do \
	  [ -f "$$file" ] || continue; name=$$(basename "$$file" .py); ran=1; \
	  printf '==> %s\n' "benchmarks.$$name --quick"; \
	  $(BIN)/python -m "benchmarks.$$name" --quick; \
	done; [ $$ran = 1 ] || echo 'no benchmarks/bench_*.py yet'

.PHONY: constraints
constraints: ## write constraints.txt anew from the newest versions that fit (needs the network)
	@rm -rf build/constraints && mkdir -p build
	$(call say,making a fresh environment with the newest versions that fit)
	@python3 -m venv build/constraints
	@build/constraints/bin/python -m pip install --quiet --disable-pip-version-check '.[dev]'
	@head=$$(sed -n '/^#/p' constraints.txt); \
	  { echo "$$head"; build/constraints/bin/python -m pip freeze --exclude perdure; } > build/constraints.txt
	@mv build/constraints.txt constraints.txt && rm -rf build/constraints

.PHONY: clean
clean: ## remove caches and build output; .venv and the agents' data (.perdure) stay
	@rm -rf build dist demo-output .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage *.egg-info
	@find . -path ./$(VENV) -prune -o -path ./.perdure -prune -o -name __pycache__ -type d -print0 | xargs -0 rm -rf
