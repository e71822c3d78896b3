# What `sam build` runs: the package of the functions, in ARTIFACTS_DIR. Included by makefiles that say
#   build_python   a Python with dynamodb-projections installed
#   RULES          the rule file
#   build_needs    what has to be made first, if anything

TEMPLATE ?= template.yaml# compared with RULES first, if it is here; empty: it is not
LAMBDA_PYTHON ?= 3.13
LAMBDA_PLATFORM ?= manylinux2014_aarch64# `native` for this machine and its Python, as local emulators run functions
BUNDLE_BOTO3 ?=# 1: boto3 in the package, for where the runtime brings none
TRACING ?=# 1: the X-Ray SDK in the package, for the template's Tracing=Active

# Names of files reach the shell in its environment: neither make nor the shell expands what is in a name.
override RULES := $(value RULES)
override TEMPLATE := $(value TEMPLATE)
override ARTIFACTS_DIR := $(value ARTIFACTS_DIR)
lambda_builds = build-StreamFunction build-WorkerFunction build-AuditFunction
template-agrees $(lambda_builds): override export RULES := $(RULES)
template-agrees $(lambda_builds): override export TEMPLATE := $(TEMPLATE)
template-agrees $(lambda_builds): override export ARTIFACTS_DIR := $(ARTIFACTS_DIR)

ifeq ($(LAMBDA_PLATFORM),native)
lambda_pip = --only-binary=:all:
lambda_compiler = $(build_python)
else
lambda_pip = --only-binary=:all: --platform $(LAMBDA_PLATFORM) --python-version $(LAMBDA_PYTHON)
lambda_compiler = python$(LAMBDA_PYTHON)
endif
# Exact versions with the hashes of all their wheels: other bytes are refused, wherever pip gets them from.
lambda_locks = requirements.txt $(if $(BUNDLE_BOTO3),requirements-boto3.txt) $(if $(TRACING),requirements-tracing.txt)
lambda_packages = --require-hashes $(foreach lock,$(lambda_locks),-r "$$ARTIFACTS_DIR/handlers/$(lock)")

.PHONY: template-agrees $(lambda_builds)

# Filters of former rules drop the records that new ones need: a forgotten template ends the build. SAM prints nothing but the
# errors of a build that failed.
template-agrees: $(build_needs)
	@test -f "$$TEMPLATE" || exit 0; \
	found=$$($(build_python) -m projections check --template "$$TEMPLATE" -- "$$RULES" 2>&1) || { \
		printf '%s\n' "$$found" "$$TEMPLATE does not agree with $$RULES, so nothing was built." \
			"If you deploy another template, set TEMPLATE to its file." >&2; exit 1; }

build-StreamFunction: template-agrees

# One package for all functions; each names its own handler.
$(lambda_builds): $(build_needs)
	@$(build_python) -m projections.deploy.package "$$RULES" "$${ARTIFACTS_DIR:?}"
	@$(build_python) -m pip install --quiet --disable-pip-version-check --no-compile --target "$$ARTIFACTS_DIR" \
		$(lambda_pip) $(lambda_packages)
	@# RECORD lists files that are removed below; sbom.cdx.json and each METADATA say which versions are in the package.
	@cd "$$ARTIFACTS_DIR" && rm -rf bin aws_lambda_powertools/event_handler handlers/requirements*.txt *.dist-info/RECORD
	@# Nine tenths of Powertools are utilities that nothing here imports.
	@find "$$ARTIFACTS_DIR/aws_lambda_powertools/utilities" -mindepth 1 -maxdepth 1 -type d ! -name jmespath_utils \
		-exec rm -rf {} +
	@find "$$ARTIFACTS_DIR" -name __pycache__ -prune -exec rm -rf {} +
	@# Lambda cannot write bytecode, and would compile every module at every cold start. With the paths it has there, the same
	@# bytes come of every build directory.
	@if $(lambda_compiler) -c "" 2>/dev/null; \
	then PYTHONHASHSEED=0 $(lambda_compiler) -m compileall -q --invalidation-mode unchecked-hash \
		-s "$$ARTIFACTS_DIR" -p /var/task "$$ARTIFACTS_DIR"; \
	else echo "$(lambda_compiler) was not found: the package has no bytecode, so cold starts are slower" >&2; fi
