# Each target sets up .venv by itself when something it depends on has changed. Needs Python >= 3.10 and make.

PYTHON ?= python3
BIN := .venv/bin
DISTRIBUTIONS := . plugins/xgrammar plugins/guidance plugins/outlines plugins/lm_format_enforcer conformance
STAMP := .venv/.installed
INPUTS := requirements-dev.txt constraints.txt pyproject.toml $(wildcard plugins/*/pyproject.toml) conformance/pyproject.toml \
	hatch_build.py grammar_backends/kernels/apply_cpu.c
BACKENDS := xgrammar guidance outlines lm-format-enforcer
CORPUS ?=
STEPS ?= 1000000
SEED ?= 1

.PHONY: setup compare conformance probe test lint bench docs clean soak

setup: $(STAMP)

$(STAMP): $(INPUTS)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade --constraint constraints.txt pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch numpy
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --requirement requirements-dev.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation $(addprefix --editable ,$(DISTRIBUTIONS))
	touch $@

compare: $(STAMP)
	$(BIN)/gb compare --suite smoke --tokenizer tekken --format table

conformance: $(STAMP)
	$(BIN)/gb conformance run $(BACKENDS) --profile core --format table

probe: $(STAMP)
	$(BIN)/gb probe $(BACKENDS) --check --format table

test: $(STAMP)
	$(BIN)/python -m pytest

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)
	$(BIN)/python -m grammar_backends_conformance.benchmarks.overhead $(if $(CORPUS),--corpus $(CORPUS))
	$(BIN)/python -m grammar_backends_conformance.benchmarks.batches $(if $(CORPUS),--corpus $(CORPUS))
	$(BIN)/python -m grammar_backends_conformance.benchmarks.compilation --check
	$(BIN)/python -m grammar_backends_conformance.benchmarks.apply_masks --threads 1

docs: $(STAMP)
	$(BIN)/mkdocs build --quiet --strict

clean:
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

soak: $(STAMP)
	for name in $(or $(BACKEND),xgrammar guidance outlines lm-format-enforcer); do \
		$(BIN)/python -m grammar_backends_conformance.laws.soak --backend $$name --steps $(STEPS) --seed $(SEED) || exit 1; done
	$(BIN)/python -m grammar_backends_conformance.laws.batches.soak --steps $(STEPS) --seed $(SEED)
	$(BIN)/python -m grammar_backends_conformance.benchmarks.compilation_soak
