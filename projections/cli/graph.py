"""`projections graph`."""

from __future__ import annotations

from pathlib import Path

import click

from projections.cli.generated import force_option, write_generated
from projections.cli.options import as_json, find_rules, note_written, output_option, rules_argument
from projections.errors import UsageError
from projections.terminal import count, json_text, print_text

__all__ = ["command"]

ENDINGS = {".mmd": "mermaid", ".mermaid": "mermaid", ".dot": "dot", ".gv": "dot", ".html": "html", ".htm": "html"}

PICTURES = (".svg", ".png", ".pdf", ".jpg", ".jpeg", ".gif")

COMMENTS = {"mermaid": "%% {}", "dot": "// {}", "html": "<!-- {} -->"}


@click.command("graph")
@rules_argument
@as_json
@click.option(
    "--format",
    "form",
    type=click.Choice(["mermaid", "dot", "html"]),
    help="Output format. [default: by the suffix of the output file, else mermaid]",
)
@output_option
@force_option
def command(
    file: str | None, rules: str | None, as_json: bool, form: str | None, output: str | None, force: bool
) -> int:
    """Draw entities and rules as Mermaid, Graphviz DOT or an HTML page.

    The HTML page requires no network, and shows the keys, conditions and cost of each rule.

    If FILE of -o was edited since this command wrote it, the command shows the difference and asks before it overwrites the
    file. Without a terminal it writes nothing; --force overwrites.

    \b
    Examples:
      projections graph rules.yaml -o rules.html
      projections graph rules.yaml --format dot | dot -Tsvg > rules.svg
    """
    from projections.deploy.checksum import with_checksum
    from projections.inspect.graph import dot, graph_of, mermaid, page
    from projections.language.loader import load
    from projections.language.review import review

    if as_json and (form is not None or output is not None):
        raise UsageError("--json prints the graph as data: omit --format and -o")
    path = find_rules(file, rules)
    graph = graph_of(load(path, executable=False), path.name, review(path, path.name).findings)
    if as_json:
        print_text(json_text(graph.document()))
        return 0
    suffix = Path(output or "").suffix.lower()
    if form is None and suffix in PICTURES:
        raise UsageError(
            f"{output}: this command writes no {suffix[1:].upper()}. Graphviz makes it: "
            f"projections graph {path} --format dot | dot -T{suffix[1:]} > {output}"
        )
    form = form or ENDINGS.get(suffix, "mermaid")
    text = {"mermaid": mermaid, "dot": dot, "html": page}[form](graph)
    if output is None:
        print_text(text)
        return 0
    if not write_generated(output, with_checksum(text.rstrip("\n") + "\n", COMMENTS[form]), force=force):
        return 1
    note_written(output, f"{count(len(graph.rules), 'rule')} of {path.name}")
    return 0
