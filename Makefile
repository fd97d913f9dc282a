# Everything one does with a checkout. The environment is .venv, made from requirements.lock by scripts/install.py.
# The first Python that scripts/install.py takes.
PYTHON ?= $(or $(shell for p in python3 python3.12 python3.11; do \
	$$p scripts/install.py --help >/dev/null 2>&1 && echo $$p && break; done),python3)
VENV ?= .venv
BIN := $(VENV)/bin
# Stamps: what the job and the demo need; the same with torch, the server and the developers' tools.
BASE := $(VENV)/.freshet-base
ALL := $(VENV)/.freshet-all
ARGS ?=
# Test processes side by side: whole jobs start and stop in them, so that two leave a core idle now and then.
WORKERS ?= 3

.DEFAULT_GOAL := help
.PHONY: help install demo test quick drills check docs bench bench-matrix wheel lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

install: $(ALL) ## .venv with all that the other targets need, Java and torch included (TORCH=cpu: without CUDA)

demo: $(BASE) ## streams changes of the Cora graph through Flink and checks the embeddings (no torch; a minute)
	$(BIN)/python scripts/demo.py $(ARGS)

test: $(ALL) ## all tests (ARGS="tests/unit -q" for some)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 25 $(ARGS)

quick: $(ALL) ## in two minutes: house, imports, tests of the rooms that changed, some seeds and models
	$(BIN)/python scripts/quick.py

drills: $(ALL) ## the tests that are too long for make test: more kills, rescaling and lost machines (half an hour)
	$(BIN)/python -m pytest -n 2 -m long $(ARGS)

check: $(ALL) ## linters and types
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(ALL) ## the site of the documentation, into build/docs/site; checks its links (ARGS=--serve: on this machine)
	$(BIN)/python scripts/site/build.py $(ARGS)

bench: $(ALL) ## throughput and latency of both runtimes on an arxiv-shaped stream
	$(BIN)/python scripts/bench/throughput.py $(ARGS)

bench-matrix: $(ALL) ## parts x processes x sizes of an epoch on two graphs; hours, goes on after a stop (ARGS=--help)
	$(BIN)/python scripts/bench/matrix.py $(ARGS)

wheel: $(BASE) ## the wheels of freshet-gnn and freshet-client, into dist/
	$(BIN)/python scripts/wheel.py $(ARGS)

lock: $(ALL) ## requirements.lock from pyproject.toml (ARGS=--upgrade for the newest versions)
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest --generate-hashes \
		--all-extras --group dev --group bootstrap --custom-compile-command "make lock" $(ARGS) \
		pyproject.toml --output-file requirements.lock

clean: ## takes away .venv, caches and outputs
	rm -rf $(VENV) build dist out* .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

SETUP := requirements.lock pyproject.toml setup.py scripts/install.py

$(BASE): $(SETUP)
	$(PYTHON) scripts/install.py --venv $(VENV) --no-warm-up plots
	touch $@

$(ALL): $(SETUP)
	$(PYTHON) scripts/install.py --venv $(VENV) $(addprefix --torch ,$(TORCH)) all
	touch $(BASE) $@
