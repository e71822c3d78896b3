"""`projections template`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from projections.cli.generated import force_option, write_generated
from projections.cli.options import as_json, find_rules, output_option, program_of, rules_argument
from projections.errors import UsageError
from projections.language.bundled import SHIPPED
from projections.terminal import json_text, print_text

if TYPE_CHECKING:
    from projections.deploy.needs import Deployment

__all__ = ["command"]


@click.command("template")
@rules_argument
@click.option("--existing-table", "existing", is_flag=True, help="Use existing tables; their names are parameters.")
@click.option(
    "--gradual",
    is_flag=True,
    help="Shift batches to a new version of the stream function gradually, and back if an alarm fires (CodeDeploy).",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["sam", "manifest", "manifest-schema"]),
    default="sam",
    show_default=True,
    help="manifest: the same information as JSON, for CDK, Terraform and SST; manifest-schema: its JSON Schema.",
)
@as_json
@output_option
@force_option
def command(
    file: str | None,
    rules: str | None,
    existing: bool,
    gradual: bool,
    form: str,
    as_json: bool,
    output: str | None,
    force: bool,
) -> int:
    """Write the SAM template for a rule file, or a JSON manifest for other tools.

    The template has tables with the keys and indexes of the rules (or parameters for existing tables), the ledger, queues,
    functions with the least permissions for these rules, filters for the records that the rules need, alarms and a
    dashboard. --json is short for --format manifest.

    If FILE of -o was edited since this command wrote it, the command shows the difference and asks before it overwrites the
    file. Without a terminal it writes nothing; --force overwrites.

    \b
    Examples:
      projections template rules.yaml -o template.yaml
      RULES=rules.yaml sam build && sam deploy --guided
    """
    if gradual and (as_json or form != "sam"):
        raise UsageError("--gradual applies to the SAM template only. Omit it, or omit --format and --json")
    if form == "manifest-schema":
        text = _schema()
    else:
        from projections.deploy.needs import Deployment

        deployment = Deployment(_shown(find_rules(file, rules)), program_of(file, rules), existing, gradual)
        text = _manifest(deployment) if as_json or form == "manifest" else _sam(deployment)
    if output is None:
        print_text(text)
        return 0
    return 0 if write_generated(output, text, force=force) else 1


def _sam(deployment: Deployment) -> str:
    from projections.deploy.template import sam_template

    return sam_template(deployment)


def _manifest(deployment: Deployment) -> str:
    from projections.deploy.checksum import signed
    from projections.deploy.manifest import manifest

    return signed(json_text(manifest(deployment).model_dump()) + "\n")


def _schema() -> str:
    from projections.deploy.checksum import UNSIGNED, signed
    from projections.deploy.manifest import Manifest

    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$comment": UNSIGNED}
    return signed(json_text({**dialect, **Manifest.model_json_schema()}) + "\n")


def _shown(path: Path) -> str:
    """Return the rule file as a template's header names it: for a bundled file, the same in every working directory."""
    if path.resolve().is_relative_to(SHIPPED.resolve()):
        return path.resolve().relative_to(SHIPPED.parents[1].resolve()).as_posix()
    return Path(os.path.relpath(path)).as_posix() if path.resolve().is_relative_to(Path.cwd()) else path.as_posix()
