"""The pages in docs/ that are generated: findings.md, from the kinds of findings.

python tests/docs/reference.py      # write them
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from guide import DOCS, ROOT, added
from ruamel.yaml import YAML

from projections.deploy import kinds as template_kinds
from projections.deploy.agreement import disagreements
from projections.deploy.cloudformation import Document, template_of
from projections.deploy.needs import Deployment
from projections.deploy.template import sam_template
from projections.language import loader
from projections.language.findings import KINDS, Finding, Kind
from projections.language.findings.kinds import BASE
from projections.language.program import Program
from projections.language.review import reviewed

__all__ = ["PAGES", "examples"]

INTRODUCTION = """\
# Findings

<!-- Written by tests/docs/reference.py from projections/language/findings/kinds.py and projections/deploy/kinds.py. -->

`projections check` reports mistakes in a rule file and findings about valid rules. `projections check --template` reports
where a template does not fit the rules. Each finding has a severity and a code:

- **error**: the rules cannot be used, or a rule can never work.
- **warning**: the rules will fail for items or a load that must be expected.
- **note**: worth knowing, and often intended.

The exit code is 1 if there are errors or warnings; `--fail-on` changes that. A comment accepts a warning or a note about
rules, on its line or above it:

```yaml
GSI1PK: BOARD # check: ignore hot-partition
```
"""


def examples() -> Iterator[tuple[Kind, tuple[Finding, ...]]]:
    """Yield every kind with the findings of its example."""
    for kind in KINDS.values():
        data = YAML(typ="safe").load(kind.example)
        yield kind, reviewed(kind.example if "table" in data else added(BASE, data)).findings
    for kind in template_kinds.KINDS.values():
        template = _merged(_social()[1], YAML(typ="safe").load(kind.example))
        yield kind, tuple(disagreements(Document("template.yaml", template), _social()[0]))


@cache
def _social() -> tuple[Deployment, Mapping[str, Any]]:
    rules = loader.load(ROOT / "projections/rules/social.yaml")
    deployment = Deployment("rules.yaml", Program.from_document(rules.canonical()), existing=False)
    return deployment, template_of(sam_template(deployment)).data


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    nested = {
        name: _merged(one[name], value)
        for name, value in other.items()
        if isinstance(value, Mapping) and isinstance(one.get(name), Mapping)
    }
    return {**one, **other, **nested}


def findings_page() -> str:
    """Return docs/findings.md."""
    found = {kind.code: findings for kind, findings in examples()}
    rules, template = KINDS.values(), template_kinds.KINDS.values()
    lines = [INTRODUCTION, *_table([*rules, *template]), "## Findings about rules\n"]
    lines += ["Examples are added to this rule file, unless they have a table:\n", _fenced("yaml", BASE)]
    lines += [_section(kind, found[kind.code]) for kind in rules]
    lines += ["## Findings about templates\n"]
    lines += [_filled("Examples are merged into the template that `projections template social` writes."), ""]
    lines += [_section(kind, found[kind.code]) for kind in template]
    return "\n".join(lines).rstrip("\n") + "\n"


def _table(kinds: list[Kind]) -> Iterator[str]:
    yield "| code | severity | |"
    yield "| --- | --- | --- |"
    for kind in kinds:
        yield f"| [{kind.code}](#{kind.code}) | {', '.join(kind.severities)} | {kind.summary} |"
    yield ""


def _section(kind: Kind, findings: tuple[Finding, ...]) -> str:
    message = str(findings[0]).split(": ", 1)[1]
    return "\n".join([
        f"### {kind.code}\n",
        _filled(f"{' or '.join(kind.severities).capitalize()}: {kind.summary}") + "\n",
        _filled(f"**Why it matters.** {kind.why}") + "\n",
        _filled(f"**How to fix it.** {kind.fix}") + "\n",
        _fenced("yaml", kind.example),
        _fenced("text", f"{message}\n"),
    ])  # fmt: skip


def _filled(text: str) -> str:
    return textwrap.fill(text, 125, break_long_words=False, break_on_hyphens=False)


def _fenced(language: str, text: str) -> str:
    return f"```{language}\n{text}```\n"


PAGES = {"findings.md": findings_page}
"""Pages in docs/, and what they must be."""


def main() -> None:
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
