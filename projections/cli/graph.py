"""`projections graph`."""

from __future__ import annotations

from pathlib import Path

import click

from projections.cli.options import find_rules, force_option, output_option, put_out, rules_argument
from projections.errors import UsageError
from projections.terminal import count

ENDINGS = {".mmd": "mermaid", ".mermaid": "mermaid", ".html": "html", ".htm": "html"}

COMMENTS = {"mermaid": "%% {}", "html": "<!-- {} -->"}


@click.command("graph")
@rules_argument
@click.option(
    "--format",
    "form",
    type=click.Choice(["mermaid", "html"]),
    help="Output format. [default: by the suffix of the output file; otherwise mermaid]",
)
@output_option
@force_option
def command(rules: str | None, form: str | None, output: str | None, force: bool) -> int:
    """Draw entities and rules as Mermaid or an HTML page.

    The HTML page requires no network, and shows the keys, conditions and cost of each rule.

    If FILE of -o was edited since this command wrote it, the command shows the difference and asks before it overwrites the
    file. Without a terminal it writes nothing; --force overwrites.

    \b
    Examples:
      projections graph rules.yaml -o rules.html
      projections graph rules.yaml > rules.mmd
    """
    from projections.deploy.checksum import with_checksum
    from projections.inspect.graph.graph_model import graph_of, mermaid
    from projections.inspect.graph.page import page
    from projections.language.loader import load
    from projections.language.review import review

    path = find_rules(rules)
    graph = graph_of(load(path), path.name, review(path, path.name).findings)
    suffix = Path(output or "").suffix.lower()
    if form is None and output is not None and suffix not in ENDINGS:
        raise UsageError(f"{output}: this command writes .mmd and .html; other names need --format")
    form = form or ENDINGS.get(suffix, "mermaid")
    text = page(graph) if form == "html" else mermaid(graph)
    if output is not None:
        text = with_checksum(text.rstrip("\n") + "\n", COMMENTS[form])
    return 0 if put_out(text, output, f"{count(len(graph.rules), 'rule')} of {path.name}", force=force) else 1
