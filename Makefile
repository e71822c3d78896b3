# Every target works in a fresh clone with nothing but python3 and make: what it needs is installed into .venv, once.
# The tests also use Java and npm for DynamoDB Local, Chromium for pictures of rules; without them those tests
# are skipped.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
SAM_READY := .venv-sam/.ready
CHECKOV_READY := .venv-checkov/.ready
DOCS_READY := .venv-docs/.ready
CDK_READY := .venv-cdk/.ready
HISTORIES ?= 6000# for each of 33 rule files, and a tenth for each of 20 patterns: 210,000 in all
READ_HISTORIES ?= 6000# for each of five kinds
MODEL_HISTORIES ?= 20000# of each of two models
JOBS ?= 2
SEED ?= 1000000
SOURCES ?= 100000
SAM_VERSION := aws-sam-cli>=1.140,<2
CHECKOV_VERSION := checkov>=3.2,<4
DOCS_VERSION := mkdocs-material>=9.6,<10
SBOM_VERSION := cyclonedx-bom>=7.5,<8

.DEFAULT_GOAL := help
.PHONY: help test deep docs lint format types demo simulate models reads mutants bench lock sbom dist template sam checkov clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:.*## /\t/' | expand -t 12

PYTEST := $(BIN)/python -m pytest --dist loadgroup -n

test: lint ## Run lint, types, and all tests except the deep ones (a few minutes)
	$(BIN)/mypy & types=$$!; $(PYTEST) 3 -m "not deep"; tests=$$?; wait $$types && exit $$tests

deep: $(READY) $(SAM_READY) $(CHECKOV_READY) $(DOCS_READY) $(CDK_READY) ## Run the other tests: searches, long properties, deployments, runbooks
	$(PYTEST) 4 -m deep

lint: $(READY) ## Check style and layout
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## Check types
	$(BIN)/mypy

format: $(READY) ## Correct style and layout
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

demo: $(READY) ## Run sample events through the rules and show what changes
	$(BIN)/projections replay events/social.json --rules projections/rules/social.yaml

SIMULATED := projections/rules/social.yaml $(wildcard tests/simulation/rules/*.yaml)
PATTERNS := $(filter-out $(SIMULATED),$(wildcard projections/rules/*.yaml))

simulate: $(READY) ## Run 210,000 histories of the engine with all rule files of this project (HISTORIES each, in JOBS processes; with LANES=1 a half of the aggregates of 18 files counts by lanes)
	@told=$$(mktemp); begun=$$(date +%s); code=0; by_lanes=$$(mktemp -d); \
	for rules in $(if $(LANES),$$($(BIN)/python tests/simulation/by_lanes.py $$by_lanes | sed 's/$$/:$(HISTORIES)/'), \
	  $(SIMULATED:=:$(HISTORIES)) $(foreach rules,$(PATTERNS),$(rules):$(shell expr $(HISTORIES) / 10))); do \
	  echo "$${rules%:*}"; \
	  $(BIN)/projections simulate --rules $${rules%:*} --histories $${rules##*:} --jobs $(JOBS) --seed $(SEED) \
	    > $$told.one || code=1; \
	  cat $$told.one; cat $$told.one >> $$told; \
	  test $$code = 0 || break; \
	done; \
	awk -v seconds=$$(($$(date +%s) - begun)) '/ histories passed: / { gsub(",", ""); all += $$2 } \
	  / with wrong values, / { gsub(",", ""); all += $$1; wrong += $$3; harm += $$7 } \
	  END { printf "In all: %d histories, wrong %d, harm %d, %d s\n", all, wrong, harm, seconds }' $$told; \
	rm -rf $$told $$told.one $$by_lanes; exit $$code

models: $(READY) ## Run 40,000 histories of the models of the protocols (MODEL_HISTORIES of each, in 2 processes)
	MODEL_HISTORIES=$(MODEL_HISTORIES) $(BIN)/python -m pytest tests/models -k histories_end -n 2

reads: $(READY) ## Run 30,000 histories of reads of own writes and of waits (READ_HISTORIES of each kind, in JOBS processes)
	READ_HISTORIES=$(READ_HISTORIES) $(BIN)/python -m pytest tests/access -k many_histories -n $(JOBS)

mutants: $(READY) ## Run all mutants of the engine, including those that few histories detect
	RARE_MUTANTS=1 $(BIN)/python -m pytest tests/simulation -k test_a_defect -n $(JOBS)

bench: $(READY) ## Measure the cost of an event, compared with alternatives, and growth to SOURCES items (full: SOURCES=1000000)
	$(BIN)/python -m benchmarks --sources $(SOURCES)

# For all platforms and Python versions that Lambda has. In one resolution first, so that the locks agree where they are combined.
UPGRADE ?= --upgrade
LOCKED ?=# a directory with copies of the locks, ending in a slash: the test writes there
LOCK = $(BIN)/uv pip compile --quiet $(UPGRADE) --universal --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command "make lock"

lock: $(READY) ## Update the locked versions for the functions, the command line and the build of this package (UPGRADE= keeps versions that still fit)
	@cat $(LOCKED)handlers/requirements*.txt > $(LOCKED)all.lock
	$(LOCK) --group functions --group boto3 --group tracing --output-file $(LOCKED)all.lock
	for part in functions: boto3:-boto3 tracing:-tracing; do \
	  $(LOCK) --group $${part%:*} --constraints $(LOCKED)all.lock --output-file $(LOCKED)handlers/requirements$${part#*:}.txt || exit; \
	done
	$(LOCK) --group build --output-file $(LOCKED)requirements-build.txt
	$(LOCK) --constraints $(LOCKED)all.lock --output-file $(LOCKED)requirements-cli.txt pyproject.toml
	@rm -f $(LOCKED)all.lock

sbom: $(READY) ## Write the SBOM of the functions' package and docs/licences.md, from the locked versions
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv-sbom
	$(BIN)/uv pip install --quiet --python .venv-sbom/bin/python --require-hashes \
	  $(foreach lock,$(wildcard handlers/requirements*.txt),-r $(lock))
	$(BIN)/uv tool run --quiet --from '$(SBOM_VERSION)' cyclonedx-py environment --output-reproducible \
	  --pyproject pyproject.toml --mc-type library .venv-sbom > .venv-sbom/found.json
	$(BIN)/python tests/deploy/sbom.py < .venv-sbom/found.json

dist: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
dist: $(READY) ## Build wheel and sdist into dist/. Two builds of a commit have the same bytes
	$(BIN)/uv build --quiet --build-constraints requirements-build.txt --require-hashes --out-dir dist

template: $(READY) ## Generate template.yaml from the bundled rules
	$(BIN)/projections template social -o template.yaml --force

sam: $(SAM_READY) ## Install the SAM command line, in .venv-sam

docs: $(DOCS_READY) ## Build the documentation site into site/. It works offline: open site/index.html
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build

checkov: $(CHECKOV_READY) ## Check the template with checkov. Correct each finding, or skip it beside the resource with a reason
	.venv-checkov/bin/checkov --file template.yaml --framework cloudformation --skip-download --compact --quiet

clean: ## Remove everything that was installed or built
	rm -rf .venv .venv-* .emulators site .aws-sam .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist

# uv installs ten times as fast; where it cannot be had, pip does the same.
$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	if $(BIN)/python -m pip install --quiet --disable-pip-version-check uv; \
	then $(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[dev]'; \
	else $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'; \
	fi
	touch $@

# Environments of their own: aws-sam-cli and checkov pin boto3 to one version each, and nobody needs MkDocs but `make docs`, and
# CDK but its tests.
$(SAM_READY): wanted = $(SAM_VERSION)
$(CHECKOV_READY): wanted = $(CHECKOV_VERSION)
$(DOCS_READY): wanted = $(DOCS_VERSION)
$(CDK_READY): wanted = .[cdk]
$(CDK_READY): pyproject.toml
$(SAM_READY) $(CHECKOV_READY) $(DOCS_READY) $(CDK_READY): $(READY) Makefile
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	if test -x $(BIN)/uv; \
	then $(BIN)/uv pip install --quiet --python $(@D)/bin/python '$(wanted)'; \
	else $(@D)/bin/python -m pip install --quiet --disable-pip-version-check '$(wanted)'; \
	fi
	touch $@

# --- SAM build
# `sam build` runs build-<LogicalId> with ARTIFACTS_DIR, so it needs neither Docker nor the runtime's own Python.
RULES ?= projections/rules/social.yaml# what becomes rules.json in the package
BUILD_PYTHON ?=# a Python with this package installed; without it, that of .venv
build_python = $(or $(BUILD_PYTHON),$(BIN)/python)
build_needs = $(if $(BUILD_PYTHON),,$(READY))
include projections/deploy/build.mk

.PHONY: validate

validate: $(READY) $(SAM_READY) ## Check the template with cfn-lint and SAM
	$(BIN)/cfn-lint template.yaml
	AWS_DEFAULT_REGION=$${AWS_DEFAULT_REGION:-us-east-1} .venv-sam/bin/sam validate --lint
