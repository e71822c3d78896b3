"""The command `projections`: exit code 0 for success, 1 if there are findings, 2 for wrong usage or invalid files."""

from __future__ import annotations

import gc
import importlib
import io
import os
import sys
import traceback
from collections.abc import Sequence

import click

from projections import __version__
from projections.errors import ProjectionsError, RulesError, UsageError
from projections.printable import printable

WRONG = 2
BUG = 70
"""The exit code of sysexits.h for an internal software error."""

GROUPS = {
    "Write": {
        "init": "Create a project: rules, events, tests and a SAM template.",
        "check": "Validate and lint rule files, or compare a template with one.",
        "queries": "Show which requests answer the queries of a rule file, run one, or read ranks.",
        "explain": "Explain what rules do with stream records, or where the derived values of an item come from.",
        "graph": "Draw entities and rules as Mermaid or an HTML page.",
        "cost": "Estimate what rules cost on AWS, and find hot keys.",
        "diff": "Show what a change of rules requires: what is filled and deleted, and what to deploy.",
    },
    "Test": {
        "replay": "Run recorded stream events through the real handler, and print the derived items.",
        "simulate": "Test rules under redelivery, reordering, crashes and external writes.",
        "dev": "Run rules on a table's stream, and reload them when they change.",
    },
    "Deploy": {
        "template": "Write the SAM template for a rule file, or files for CloudFormation and CDK.",
        "client": "Write a module with a typed function for each query of a rule file, in Python or TypeScript.",
        "apply": "Apply a rule file: register new and changed rules, fill them from existing items, and publish them.",
        "promote": "Publish the filled version of a rule, for example after `apply --hold`.",
        "rollback": "Publish the version of a rule again that was published before.",
    },
    "Operate": {
        "backfill": "Refresh everything that depends on existing items, under all versions of rules.",
        "status": "Show the state of rules, backfills and queues, and what needs to be done.",
        "verify": "Compare stored values with the rules; --repair corrects differences.",
        "redrive": "Refresh the items of quarantined or discarded records, and retry failed tasks.",
        "console": "Serve a local, read-only page on live tables.",
    },
}
"""The commands and their help, by what a person does."""

COMMANDS = {name: summary for group in GROUPS.values() for name, summary in group.items()}
"""All of them. Command x is the function `command` in `projections.cli.x`."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"projections.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            from projections.language.syntax import suggest

            ctx.fail(f"No such command '{args[0]}'{suggest(args[0], COMMANDS)}.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:8}", summary) for name, summary in group.items()])


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="projections", message="%(prog)s %(version)s")
def cli() -> None:
    """Maintain materialized views in DynamoDB, as a rule file defines them."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit. Every error is one message on standard error, without a traceback."""
    gc.set_threshold(100_000)  # most objects of a command are its modules, which stay
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "true")  # else it reads the metadata of all installed packages
    code: object = WRONG
    try:
        code = cli.main(args=arguments, prog_name="projections", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        from projections.terminal import print_text

        print_text(error.format_message())
    except click.ClickException as error:
        _show(error)
    except click.Abort:
        code = 130
    except RulesError as error:
        _print_error(*map(str, error.problems))
    except UsageError as error:
        first, *more = error.lines
        _print_error(f"projections: {first}", *more)
    except ProjectionsError as error:
        _print_error(f"projections: {error}")
    except BrokenPipeError:
        # The reader of our output has closed the pipe. Python would raise again when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except Exception as error:
        if os.environ.get("PROJECTIONS_DEBUG"):
            _print_error(*traceback.format_exc().split("\n"))
        _print_error(
            f"projections: internal error, please report it: {type(error).__name__}: {error} "
            "(PROJECTIONS_DEBUG=1 shows where)"
        )
        code = BUG
    gc.freeze()  # else the interpreter looks for garbage among all objects before it ends
    sys.exit(code if isinstance(code, int) else 0)


def _print_error(*lines: str) -> None:
    from projections.terminal import print_line

    for line in lines:
        print_line(line, err=True)


def _show(error: click.ClickException) -> None:
    """Print click's message of wrong usage, with the arguments in it made printable."""
    output, message = io.StringIO(), error.format_message()
    error.show(output)
    _print_error(*output.getvalue().rstrip("\n").replace(message, printable(message)).split("\n"))
