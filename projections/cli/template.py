"""`projections template`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from projections.cli.options import (
    find_rules,
    force_option,
    note_written,
    output_option,
    program_of,
    put_out,
    rules_argument,
)
from projections.errors import UsageError
from projections.language.files import SHIPPED
from projections.terminal import json_text, print_line

if TYPE_CHECKING:
    from projections.deploy.needs import Deployment


@click.command("template")
@rules_argument
@click.option("--existing-table", "existing", is_flag=True, help="Use existing tables; their names are parameters.")
@click.option(
    "--leading-keys",
    is_flag=True,
    help="Allow the functions to read and write only items whose partition keys have the prefixes of the rules (IAM).",
)
@click.option(
    "--notify",
    metavar="RULE",
    multiple=True,
    help="Add a pipe that sends changes of items with values of this rule to an event bus. Repeatable.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["sam", "cloudformation", "cdk", "cdk-typescript"]),
    default="sam",
    show_default=True,
    help="cloudformation: the same resources without SAM's transform, also for Terraform; "
    "cdk: that template with values for its parameters, as CDK constructs include it; cdk-typescript: the CDK construct.",
)
@click.option(
    "--set",
    "settings",
    metavar="NAME[=VALUE]",
    multiple=True,
    help="With --format cdk: the value of a parameter. Without VALUE, the parameter remains; its value must not be empty.",
)
@output_option
@click.option(
    "--package",
    metavar="FILE",
    help="With --format cloudformation or cdk: also build the functions' package as this archive, with make and pip.",
)
@force_option
def command(
    rules: str | None,
    existing: bool,
    leading_keys: bool,
    notify: tuple[str, ...],
    form: str,
    settings: tuple[str, ...],
    output: str | None,
    package: str | None,
    force: bool,
) -> int:
    """Write the SAM template for a rule file, or files for CloudFormation and CDK.

    The template has tables with the keys and indexes of the rules (or parameters for existing tables), the ledger, queues,
    functions with the least permissions for these rules, filters for the records that the rules need, alarms and a
    dashboard.

    The archive of --package has the library, the entry points, the compiled rules and the locked dependencies for Lambda's
    platform. Environment variables change it as they do with `sam build`: LAMBDA_PYTHON, TRACING, BUNDLE_BOTO3. Archives of
    the same rules by the same version of this program have the same bytes. An existing archive is overwritten.

    If FILE of -o was edited since this command wrote it, the command shows the difference and asks before it overwrites the
    file. Without a terminal it writes nothing; --force overwrites.

    \b
    Examples:
      projections template rules.yaml -o template.yaml
      RULES=rules.yaml sam build && sam deploy --guided
      projections template rules.yaml --format cloudformation -o template.json --package functions.zip
    """
    if settings and form != "cdk":
        raise UsageError("--set applies to --format cdk only. With other formats, the values are passed on deployment")
    if package is not None and form not in ("cloudformation", "cdk"):
        raise UsageError(
            "--package applies to --format cloudformation and cdk only. `sam build` builds the package itself"
        )
    _check_suffix(output, form)
    if form == "cdk-typescript":
        from projections.deploy.checksum import with_checksum
        from projections.deploy.plain import TYPESCRIPT

        text = with_checksum(TYPESCRIPT.read_text(encoding="utf-8"), "// {}")
    else:
        from projections.deploy.needs import Deployment

        program = program_of(rules)
        deployment = Deployment(_path_text(find_rules(rules)), program, existing, leading_keys, notify)
        text = _text(form, deployment, settings)
    if not put_out(text, output, force=force):
        return 1
    if package is not None:
        from projections.deploy.package import write_archive

        size, remarks = write_archive(find_rules(rules), package)
        for line in remarks.splitlines():
            print_line(f"note: {line}", err=True)
        note_written(package, f"{size / 1e6:.1f} MB")
    return 0


_SUFFIXES = {"sam": (".yaml", ".yml"), "cdk-typescript": (".ts",)}
"""The suffixes of files by format; the other formats are JSON, which YAML includes."""
_JSON = (".json", ".yaml", ".yml")


def _check_suffix(output: str | None, form: str) -> None:
    """Raise UsageError if the name of the output file has the suffix of another format."""
    suffix, own = Path(output or "").suffix.lower(), _SUFFIXES.get(form, _JSON)
    if suffix in own or suffix not in (*_JSON, ".ts"):
        return
    fitting = [name for name, suffixes in _SUFFIXES.items() if suffix in suffixes] or ["cloudformation"]
    raise UsageError(
        f"{output}: the format {form} is not for {suffix} files. "
        f"Pass --format {fitting[0]}, or write to a file with the suffix {own[0]}"
    )


def _text(form: str, deployment: Deployment, settings: tuple[str, ...]) -> str:
    if form == "sam":
        from projections.deploy.sam_template import sam_template

        return sam_template(deployment)
    from projections.deploy.checksum import sign
    from projections.deploy.plain import cloudformation_template, with_values

    template = cloudformation_template(deployment)
    if form == "cdk":
        split = (text.partition("=") for text in settings)
        template = with_values(template, {name: value if equals else None for name, equals, value in split})
    return sign(json_text(template) + "\n")


def _path_text(path: Path) -> str:
    """Return the rule file as a template's header names it: for a bundled file, the same in every working directory."""
    if path.resolve().is_relative_to(SHIPPED.resolve()):
        return path.resolve().relative_to(SHIPPED.parents[1].resolve()).as_posix()
    return Path(os.path.relpath(path)).as_posix() if path.resolve().is_relative_to(Path.cwd()) else path.as_posix()
