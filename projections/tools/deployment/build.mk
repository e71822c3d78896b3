# What `sam build` runs: the package of the functions, in ARTIFACTS_DIR. Included by makefiles that say
#   build_python   a Python with dynamodb-projections installed
#   RULES          the rule file
#   build_needs    what has to be made first, if anything

LAMBDA_PYTHON ?= 3.13
LAMBDA_PLATFORM ?= manylinux2014_aarch64# `native` for this machine and its Python, as local emulators run functions
BUNDLE_BOTO3 ?=# 1: boto3 in the package, for where the runtime brings none
TRACING ?=# 1: the X-Ray SDK in the package, for the template's Tracing=Active

ifeq ($(LAMBDA_PLATFORM),native)
lambda_pip = --only-binary=:all:
lambda_compiler = $(build_python)
else
lambda_pip = --only-binary=:all: --platform $(LAMBDA_PLATFORM) --python-version $(LAMBDA_PYTHON)
lambda_compiler = python$(LAMBDA_PYTHON)
endif
lambda_packages = -r "$(ARTIFACTS_DIR)/handlers/requirements.txt" $(if $(BUNDLE_BOTO3),boto3) \
	$(if $(TRACING),aws-xray-sdk)

.PHONY: build-StreamFunction build-WorkerFunction build-AuditFunction

# One package for all functions; each names its own handler.
build-StreamFunction build-WorkerFunction build-AuditFunction: $(build_needs)
	$(build_python) -m projections.tools.deployment.package "$(RULES)" "$(ARTIFACTS_DIR)"
	$(build_python) -m pip install --quiet --disable-pip-version-check --no-compile --target "$(ARTIFACTS_DIR)" \
		$(lambda_pip) $(lambda_packages)
	cd "$(ARTIFACTS_DIR)" && rm -rf bin aws_lambda_powertools/event_handler
	@# Nine tenths of Powertools are utilities that nothing here imports.
	find "$(ARTIFACTS_DIR)/aws_lambda_powertools/utilities" -mindepth 1 -maxdepth 1 -type d ! -name jmespath_utils \
		-exec rm -rf {} +
	find "$(ARTIFACTS_DIR)" -name __pycache__ -prune -exec rm -rf {} +
	@# Lambda cannot write bytecode, and would compile every module at every cold start.
	@if $(lambda_compiler) -c "" 2>/dev/null; \
	then $(lambda_compiler) -m compileall -q --invalidation-mode unchecked-hash "$(ARTIFACTS_DIR)"; \
	else echo "no $(lambda_compiler) here: the package holds no bytecode, cold starts will be slower" >&2; fi
