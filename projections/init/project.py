"""The files of a new project: of the example, or of a proposal. Pure, but for what ships with this package."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from projections.deploy.needs import Deployment
from projections.deploy.template import sam_template
from projections.init.events import event_file, record
from projections.init.inference.proposal import Proposal
from projections.init.invent import Invented, changed, invent
from projections.init.rule_file import rule_file
from projections.init.scenarios import items_file, test_file
from projections.language.loader import loads
from projections.language.program import Program

__all__ = ["PROPOSED", "Existing", "example", "proposed"]

RULES = "rules.yaml"

PROPOSED = (
    *(RULES, "template.yaml", "samconfig.toml", "Makefile", "pyproject.toml", "README.md", ".gitignore"),
    *("tests/items.json", "tests/test_rules.py", "events/items.json", "events/later-changes.json"),
)
"""The files of a project for a table."""

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Existing:
    """The table of a proposal as it is deployed on: its stream's ARN, None if it has none that serves."""

    table: str
    stream_arn: str | None


def example(project: str) -> dict[str, str]:
    """Path → text of each file of a project with the example."""
    rules = _read("example/rules.yaml")
    files = _common(project, rules, "customers and orders (an example)", None)
    files["tests/orders.projections.yaml"] = _read("example/orders.projections.yaml")
    items, later = _example_records()
    return {**files, "events/items.json": items, "events/later-changes.json": later}


def proposed(project: str, proposal: Proposal, existing: Existing) -> dict[str, str]:
    """Path → text of each file of a project for a table that exists."""
    rules = rule_file(proposal)
    program = Program.from_document(loads(rules, RULES).canonical())
    invented = invent(proposal, program)
    files = _common(project, rules, f"the table {existing.table}", existing)
    files["tests/items.json"] = items_file(invented)
    files["tests/test_rules.py"] = test_file(proposal, invented)
    items, later = _invented_records(proposal, invented)
    return {**files, "events/items.json": items, "events/later-changes.json": later}


def _common(project: str, rules: str, what: str, existing: Existing | None) -> dict[str, str]:
    program = Program.from_document(loads(rules, RULES).canonical())
    flags = "--existing-table " if existing else ""
    then = "; then backfill and verify" if existing else ""
    values = {"project": project, "stack": _stack(project), "what": what, "flags": flags, "then": then}
    return {
        RULES: rules,
        "template.yaml": sam_template(Deployment(RULES, program, existing is not None)),
        "samconfig.toml": _filled(_read("files/samconfig.toml"), values) + _overrides(existing),
        "Makefile": _filled(_read("files/Makefile"), values),
        "pyproject.toml": _read("files/pyproject.toml"),
        "README.md": _filled(_read("files/README.md"), values),
        ".gitignore": _read("files/gitignore"),
    }


def _overrides(existing: Existing | None) -> str:
    if existing is None:
        return ""
    if existing.stream_arn is None:
        return (
            "# The table has no stream of new and old images yet. Switch it on, and put its ARN here (LatestStreamArn):\n"
            f'# parameter_overrides = "ExistingTableName={existing.table} ExistingStreamArn=arn:…"\n'
        )
    given = f"ExistingTableName={existing.table} ExistingStreamArn={existing.stream_arn}"
    return f'parameter_overrides = "{given}"\n'


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _filled(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"<([a-z]+)>", lambda found: values.get(found[1], found[0]), text)


def _stack(project: str) -> str:
    """A name that CloudFormation takes."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", project).strip("-")
    return (name if name[:1].isalpha() else f"projections-{name}".rstrip("-"))[:70]


# --- events ---


def _invented_records(proposal: Proposal, invented: list[Invented]) -> tuple[str, str]:
    """All items as they appear; then a change of one of them, of an attribute that a rule reads if there is such, and the
    last one's deletion.
    """
    table, keys = proposal.table.name, proposal.table.key_names
    appear = [record(table, keys, number, None, one.item) for number, one in enumerate(invented)]
    changes = sorted((one for item in invented[:-1] for one in _changes(proposal, item)), key=lambda one: one[0])
    later = [
        record(table, keys, len(invented), one.item, {**one.item, name: changed(one.item[name])})
        for _, one, name in changes[:1]
    ]
    later += [record(table, keys, len(invented) + len(later), one.item, None) for one in invented[-1:]]
    return event_file(appear), event_file(later)


def _changes(proposal: Proposal, one: Invented) -> Iterator[tuple[int, Invented, str]]:
    """Attributes that could change and leave the item what it is: (how little that says, the item, the attribute)."""
    (entity,) = [each for each in proposal.entities if each.name == one.entity]
    fixed = {*proposal.table.key_names, *proposal.table.index_names, *one.variables}
    fixed |= {name for relation in proposal.relations for name in relation.binding.values()}
    embedded = {
        name
        for rule in proposal.rules
        if rule.kind == "embed" and not rule.doubt and rule.body["from"] == one.entity
        for name in rule.body["embed"]["attributes"].values()
    }
    for attribute in entity.attributes:
        if attribute.name in fixed or attribute.name not in one.item or attribute.type not in ("S", "N"):
            continue
        if entity.kind is None or attribute.name != entity.kind[0]:
            yield (0 if attribute.name in embedded else 1 if attribute.form == "text" else 2), one, attribute.name


def _example_records() -> tuple[str, str]:
    keys = ("PK", "SK")
    customer = _item("CUSTOMER#c1", "PROFILE", customerId="c1", name="Ada", joinedAt="2026-01-01T09:00:00Z")
    first = _item("CUSTOMER#c1", "ORDER#o1", orderId="o1", status="open", total=30, placedAt="2026-01-02T10:00:00Z")
    second = _item("CUSTOMER#c1", "ORDER#o2", orderId="o2", status="open", total=12, placedAt="2026-01-03T11:00:00Z")
    third = _item("CUSTOMER#c1", "ORDER#o3", orderId="o3", status="open", total=99, placedAt="2026-01-04T12:00:00Z")
    items = [record("app", keys, number, None, item) for number, item in enumerate((customer, first, second, third))]
    paid = {**first, "status": {"S": "paid"}}
    later = [
        record("app", keys, 4, first, paid),
        record("app", keys, 5, second, {**second, "status": {"S": "cancelled"}}),
        record("app", keys, 6, third, None),
        record("app", keys, 7, customer, {**customer, "name": {"S": "Ada Lovelace"}}),
        record("app", keys, 4, first, paid),  # delivered twice: it changes nothing
    ]
    return event_file(items), event_file(later)


def _item(partition: str, sort: str, **attributes: str | int) -> dict[str, dict[str, str]]:
    item = {"PK": {"S": partition}, "SK": {"S": sort}}
    for name, value in attributes.items():
        item[name] = {"S": value} if isinstance(value, str) else {"N": json.dumps(value)}
    return item
