# --- SAM build
# `sam build` runs build-<LogicalId> with ARTIFACTS_DIR, so it needs neither Docker nor the runtime's own Python.
RULES ?= projections/rules/social.yaml# what becomes rules.json in the package
LAMBDA_PYTHON ?= 3.13
LAMBDA_PLATFORM ?= manylinux2014_aarch64# `native` for this machine and its Python, as local emulators run functions
BUNDLE_BOTO3 ?=# 1: boto3 in the package, for where the runtime brings none
TRACING ?=# 1: the X-Ray SDK in the package, for the template's Tracing=Active
BUILD_PYTHON ?= $(firstword $(wildcard .venv/bin/python) python3)

ifeq ($(LAMBDA_PLATFORM),native)
lambda_pip = --only-binary=:all:
lambda_compiler = $(BUILD_PYTHON)
else
lambda_pip = --only-binary=:all: --platform $(LAMBDA_PLATFORM) --python-version $(LAMBDA_PYTHON)
lambda_compiler = python$(LAMBDA_PYTHON)
endif
lambda_packages = -r handlers/requirements.txt $(if $(BUNDLE_BOTO3),boto3) $(if $(TRACING),aws-xray-sdk)

.PHONY: build-StreamFunction sam validate
build-StreamFunction:
	$(BUILD_PYTHON) -m pip install --quiet --disable-pip-version-check --no-compile --target "$(ARTIFACTS_DIR)" \
		$(lambda_pip) $(lambda_packages)
	cp -R projections handlers "$(ARTIFACTS_DIR)"
	$(BUILD_PYTHON) -c 'import json, sys; from projections.language.loader import load; \
		json.dump(load(sys.argv[1]).canonical(), open(sys.argv[2], "w"), separators=(",", ":"))' \
		"$(RULES)" "$(ARTIFACTS_DIR)/rules.json"
	rm -rf "$(ARTIFACTS_DIR)/bin" "$(ARTIFACTS_DIR)/projections/tools" "$(ARTIFACTS_DIR)/projections/rules"
	find "$(ARTIFACTS_DIR)" -name __pycache__ -prune -exec rm -rf {} +
	@# Lambda cannot write bytecode, and would compile every module at every cold start.
	@if $(lambda_compiler) -c "" 2>/dev/null; \
	then $(lambda_compiler) -m compileall -q --invalidation-mode unchecked-hash "$(ARTIFACTS_DIR)"; \
	else echo "no $(lambda_compiler) here: the package holds no bytecode, cold starts will be slower" >&2; fi

sam: .venv-sam/bin/sam ## the SAM command line, in an environment of its own because it pins boto3
.venv-sam/bin/sam:
	python3 -m venv .venv-sam
	.venv-sam/bin/python -m pip install --quiet --disable-pip-version-check aws-sam-cli

validate: sam ## the template, by cfn-lint and by SAM
	.venv/bin/cfn-lint template.yaml
	AWS_DEFAULT_REGION=$${AWS_DEFAULT_REGION:-us-east-1} .venv-sam/bin/sam validate --lint
