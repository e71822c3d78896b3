# Every target works in a fresh clone with nothing but python3 and make: what it needs is installed into .venv, once.
# The tests also use Java and npm for DynamoDB Local; without them those tests are skipped.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
SAM_READY := .venv-sam/.ready
SAM_VERSION := aws-sam-cli>=1.140,<2

.DEFAULT_GOAL := help
.PHONY: help test lint format types demo simulate bench sam clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:.*## /\t/' | expand -t 12

test: lint types ## Lint, types and all tests
	$(BIN)/python -m pytest

lint: $(READY) ## Style and layout
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## Types, strictly
	$(BIN)/mypy

format: $(READY) ## Put style and layout right
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

demo: $(READY) ## Run sample events through the rules and show what changes
	$(BIN)/projections replay events/social.json --rules projections/rules/social.yaml

simulate: $(READY) ## The rules against redelivery, reordering and crashes
	$(BIN)/projections simulate --rules projections/rules/social.yaml

bench: $(READY) ## Write units, calls and CPU per event, beside what one would write instead
	$(BIN)/python -m benchmarks

sam: $(SAM_READY) ## Install the SAM command line, in .venv-sam

clean: ## Remove all that was installed or built
	rm -rf .venv .venv-* .emulators .aws-sam .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist

# uv installs ten times as fast; where it cannot be had, pip does the same.
$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	if $(BIN)/python -m pip install --quiet --disable-pip-version-check uv; \
	then $(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[dev]'; \
	else $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'; \
	fi
	touch $@

# An environment of its own: aws-sam-cli pins boto3 to one version.
$(SAM_READY): $(READY) Makefile
	test -x .venv-sam/bin/python || $(PYTHON) -m venv .venv-sam
	if test -x $(BIN)/uv; \
	then $(BIN)/uv pip install --quiet --python .venv-sam/bin/python '$(SAM_VERSION)'; \
	else .venv-sam/bin/python -m pip install --quiet --disable-pip-version-check '$(SAM_VERSION)'; \
	fi
	touch $@

# --- SAM build
