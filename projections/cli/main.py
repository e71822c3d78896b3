"""The command `projections`: exit code 0 if all is well, 1 if there are findings, 2 for wrong usage or broken files."""

from __future__ import annotations

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

__all__ = ["cli", "main"]

WRONG = 2
BUG = 70
"""What sysexits.h calls an internal software error: neither a finding nor the caller's fault."""

COMMANDS = {
    "backfill": "Make projections right for what tables hold already; bring changed rules into force.",
    "check": "Say whether a rule file makes sense, what each rule does, and what may go wrong with it.",
    "compile": "Print the canonical JSON of a rule file, as the deployed function reads it.",
    "cost": "Say what rules cost on AWS, beside a handler written by hand, and which key gets hot.",
    "dev": "Follow a table's stream and project live, reloading the rules when they change.",
    "diff": "Say what a change of rules means, for a pull request: targets, owners, deletions, backfills, cost.",
    "explain": "Say why records do what they do, or where the derived values of an item come from.",
    "hash": "Print the hash that logs show for a key, or the key and the quarantined messages of a hash.",
    "init": "Make a project: rules, events, tests and template; with --table, proposed from a sample of its items.",
    "graph": "Draw entities and rules: Mermaid, Graphviz DOT, or an HTML page to look at.",
    "redrive": "Refresh the items of records that were quarantined or discarded.",
    "replay": "Run recorded stream events through the real handler and show what is derived.",
    "schema": "Print the JSON Schema of rule files, for editors.",
    "simulate": "Try rules against redelivery, reordering, crashes and overwrites, in thousands of histories.",
    "status": "Say what is in force, how far backfills are, what waits, and what to do about it.",
    "template": "Write the SAM template for a rule file, or the same as JSON for other tools.",
    "verify": "Say whether what is stored is what the rules say; --repair corrects it.",
}
"""The commands with what --help says of them. Command x is the function `command` in `projections.cli.x`."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = importlib.import_module(f"projections.cli.{cmd_name}").command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="projections", message="%(prog)s %(version)s")
def cli() -> None:
    """Materialized views for DynamoDB, kept right by rules."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit. What goes wrong is told in one message on standard error, never in a traceback."""
    try:
        code = cli.main(args=arguments, prog_name="projections", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        _show(error)
        code = WRONG
    except click.Abort:
        code = 130
    except RulesError as error:
        _complain(*map(str, error.problems))
        code = WRONG
    except UsageError as error:
        first, *more = error.lines
        _complain(f"projections: {first}", *more)
        code = WRONG
    except ProjectionsError as error:
        _complain(f"projections: {error}")
        code = WRONG
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python would complain again when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except Exception as error:
        if os.environ.get("PROJECTIONS_DEBUG"):
            _complain(*traceback.format_exc().split("\n"))
        _complain(
            f"projections: a mistake of this program, please report it: {type(error).__name__}: {error} "
            "(PROJECTIONS_DEBUG=1 shows where)"
        )
        code = BUG
    sys.exit(code if isinstance(code, int) else 0)


def _complain(*lines: str) -> None:
    from projections.terminal import print_line

    for line in lines:
        print_line(line, err=True)


def _show(error: click.ClickException) -> None:
    """What click prints of wrong usage, without what an argument may have brought into it."""
    shown, message = io.StringIO(), error.format_message()
    error.show(shown)
    _complain(*shown.getvalue().rstrip("\n").replace(message, printable(message)).split("\n"))
