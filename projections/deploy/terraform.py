"""A Terraform module that deploys the plain CloudFormation template: typed variables for its parameters, and its outputs.

It has one stack, not the resources themselves: so all tools deploy the same description, a failed deployment is rolled back,
and commands find everything by the stack's name.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Container, Iterator, Mapping
from typing import Any

from projections.deploy.checksum import with_checksum
from projections.deploy.needs import Deployment
from projections.deploy.plain import CODE, cloudformation_template
from projections.printable import printable

__all__ = ["terraform_module", "variable"]

_NAME = re.compile(r"\b(?:[A-Z][a-z]+){2,}\b")
"""A possible name of a parameter in a description, such as ExistingTableName."""

_HEAD = """\
# Written by `projections template {rules}{flag} --format terraform`. A module: its directory also has
#   template.json   projections template {rules}{flag} --format cloudformation
#   functions.zip   projections package {rules}

terraform {{
  required_providers {{
    aws = {{
      source  = "hashicorp/aws"
      version = ">= 4.0"
    }}
  }}
}}

variable "name" {{
  description = "The name of the stack, for `projections status --stack NAME` and the other commands."
  type        = string
}}

variable "bucket" {{
  description = "A bucket in the Region of the stack, for the template and the functions' package."
  type        = string
}}

variable "tags" {{
  description = "Tags of the stack and of its resources."
  type        = map(string)
  default     = {{}}
}}
"""

_RESOURCES = """\
data "aws_s3_bucket" "artifacts" {{
  bucket = var.bucket
}}

locals {{
  s3 = trimprefix(data.aws_s3_bucket.artifacts.bucket_regional_domain_name, "${{var.bucket}}.")
}}

# A changed file gets a new key. The former objects are deleted after the stack was updated, because its rollback needs them.
resource "aws_s3_object" "template" {{
  bucket = data.aws_s3_bucket.artifacts.id
  key    = "${{var.name}}/${{filemd5("${{path.module}}/template.json")}}.json"
  source = "${{path.module}}/template.json"

  lifecycle {{
    create_before_destroy = true
  }}
}}

resource "aws_s3_object" "package" {{
  bucket = data.aws_s3_bucket.artifacts.id
  key    = "${{var.name}}/${{filemd5("${{path.module}}/functions.zip")}}.zip"
  source = "${{path.module}}/functions.zip"

  lifecycle {{
    create_before_destroy = true
  }}
}}

resource "aws_cloudformation_stack" "projections" {{
  name         = var.name
  template_url = "https://${{local.s3}}/${{aws_s3_object.template.bucket}}/${{aws_s3_object.template.key}}"
  capabilities = ["CAPABILITY_IAM"]
  tags         = var.tags

  parameters = {{
{parameters}
  }}
}}
"""


def terraform_module(deployment: Deployment) -> str:
    """Return the module's main.tf, with its checksum. Raises UsageError as `sam_template` does."""
    template = cloudformation_template(deployment)
    parameters = template["Parameters"]
    flag = " --existing-table" if deployment.existing else ""
    blocks = [
        _HEAD.format(rules=shlex.quote(printable(deployment.file)), flag=flag),
        *(_variable(name, one, parameters) for name, one in parameters.items() if name not in CODE),
        _RESOURCES.format(parameters="\n".join(_parameters(parameters))),
        *(_output(name, one) for name, one in template["Outputs"].items()),
    ]
    return with_checksum("\n".join(blocks))


def variable(name: str) -> str:
    """Return the name in Terraform of a parameter or output: existing_table_name for ExistingTableName."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _variable(name: str, parameter: Mapping[str, Any], names: Container[str]) -> str:
    described = _NAME.sub(lambda found: variable(found[0]) if found[0] in names else found[0], parameter["Description"])
    lines = [f'variable "{variable(name)}" {{', f"  description = {_text(described)}"]
    lines.append(f"  type        = {'number' if parameter['Type'] == 'Number' else 'string'}")
    if "Default" in parameter:
        lines.append(f"  default     = {_text(parameter['Default'])}")
    return "\n".join([*lines, "}", ""])


def _parameters(parameters: Mapping[str, Any]) -> Iterator[str]:
    code = {"CodeBucket": "aws_s3_object.package.bucket", "CodeKey": "aws_s3_object.package.key"}
    width = max(map(len, parameters))
    for name in parameters:
        yield f"    {name:{width}} = {code.get(name, f'var.{variable(name)}')}"


def _output(name: str, output: Mapping[str, Any]) -> str:
    value = f'aws_cloudformation_stack.projections.outputs["{name}"]'
    return (
        f'output "{variable(name)}" {{\n  description = {_text(output["Description"])}\n  value       = {value}\n}}\n'
    )


def _text(value: Any) -> str:
    """Return a value as HCL writes it, whose strings are those of JSON except for templates."""
    return json.dumps(value, ensure_ascii=False).replace("${", "$${").replace("%{", "%%{")
