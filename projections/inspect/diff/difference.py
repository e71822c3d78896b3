"""The consequences of a change of rules: for rules, owners, stored items, the deployment, and the steps to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from projections.deploy.needs import Deployment, TableNeeds
from projections.inspect.diff.changed_rules import Change, changes, deletions, reasons, renames, why_kept
from projections.language.facts import creators, origins
from projections.language.kinds import EVERY
from projections.language.models import Rules
from projections.language.program import Program


class OwnerChange(NamedTuple):
    """An attribute that another rule writes than before. None is the application, or no rule if rules create the items
    (`made`).
    """

    entity: str
    attribute: str
    before: str | None
    after: str | None
    note: str
    made: bool


class RuleDifference(NamedTuple):
    """A rule that differs, with deleted items."""

    change: Change
    deletions: tuple[str, ...]
    fill: tuple[str, ...]
    """Why it gets a version that is filled from the items that exist."""
    advice: str = ""


class Difference(NamedTuple):
    """All consequences. `deployment` has the changes of the template, `indexes` those to create."""

    rules: tuple[RuleDifference, ...]
    renamed: tuple[tuple[str, str, bool], ...]
    owners: tuple[OwnerChange, ...]
    deployment: tuple[str, ...]
    indexes: tuple[tuple[str, str], ...]
    """The new indexes of existing tables, as (table, index)."""
    impossible: tuple[str, ...]
    """Changes that are impossible for an existing table."""
    unchanged: int

    @property
    def findings(self) -> bool:
        """Whether anything differs."""
        return bool(self.rules or self.deployment or self.impossible)

    def steps(self) -> Iterator[str]:
        """Yield the steps to do, in this order."""
        gone = [rule.change.rule for rule in self.rules if rule.change.status == "removed"]
        if gone:
            names = ", ".join(f"{name}: keep" for name in gone)
            yield f"Keep the values of removed rules with `retired: {{{names}}}`; with `remove` instead, they are removed."
        if self.impossible:
            yield "Undo the impossible changes."
        if self.deployment:
            yield "Generate the template again (`projections template`), or edit it and run `projections check --template`."
        if len(self.indexes) > 1:
            yield "Deploy one new index at a time: CloudFormation creates at most one in an update of a table."
        if self.deployment:
            yield "Build and deploy."
        if self.rules:
            deletes = ", ".join(rule.change.rule for rule in self.rules if rule.deletions)
            flag = f" It lists what {deletes} would delete, and deletes that with `--allow-delete`." if deletes else ""
            yield f"Run `projections apply`: {', '.join(rule.change.rule for rule in self.rules)}.{flag}"


def difference(before_document: Mapping[str, Any], after_document: Mapping[str, Any]) -> Difference:
    """Return what changes from one canonical document to another, both as JSON."""
    programs = [Program.from_document(document) for document in (before_document, after_document)]
    old, new = (program.model for program in programs)
    rule_changes = changes(old, new)
    pairs = renames(old, new, rule_changes)
    names = {gone: fresh for gone, fresh, _ in pairs}
    before, after = (Deployment("", program) for program in programs)
    return Difference(
        rules=tuple(_rule(old, new, change, names.get(change.rule)) for change in rule_changes),
        renamed=tuple(pairs),
        owners=tuple(_owners(old, new)),
        deployment=tuple(template_changes(before, after)),
        indexes=tuple((table.name, name) for old, table in _both(before, after) for name in _without(table, old)),
        impossible=tuple(impossible(before, after)),
        unchanged=len(new.projections) - sum(change.status in ("new", "changed") for change in rule_changes),
    )


def _rule(old: Rules, new: Rules, change: Change, renamed_to: str | None) -> RuleDifference:
    why = tuple(reasons(change))
    advice = ""
    if change.status == "removed":
        name = change.rule
        if stays := why_kept(old, name):
            advice = f"A removed rule must be retired: `retired: {{{name}: keep}}`. With `remove`, too, {stays}."
        elif renamed_to:
            advice = (
                f"If it was renamed to `{renamed_to}`, keep the old name, and no action is needed. With the new name it is "
                f"a new rule, and `retired: {{{name}: remove}}` removes the values that `{renamed_to}` does not write."
            )
        else:
            advice = (
                f"A removed rule must be retired: `retired: {{{name}: keep}}` keeps its values, which no rule updates any "
                f"more; `retired: {{{name}: remove}}` removes them."
            )
    elif change.only_hold:
        ledger = change.rule_now.action.recorded
        stays = "It goes on in the ledger, and is" if ledger else "It is"
        advice = f"{stays} not published; the values that it has published stay." if change.rule_now.hold else ""
    return RuleDifference(change, tuple(deletions(old, new, change)), why, advice)


def _owners(old: Rules, new: Rules) -> Iterator[OwnerChange]:
    before, after = origins(old), origins(new)
    for entity in dict.fromkeys((*before, *after)):
        mine, its = before.get(entity, {}), after.get(entity, {})
        for attribute in dict.fromkeys((*mine, *its)):
            old_rule = mine[attribute].rule if attribute in mine else None
            new_rule = its[attribute].rule if attribute in its else None
            if old_rule in new.projections and old.projections[old_rule].hold:
                old_rule = None  # a held rule writes nothing
            new_rule = None if new_rule and new.projections[new_rule].hold else new_rule
            if old_rule == new_rule:
                continue
            words = "all attributes" if attribute == EVERY else attribute
            made = entity in creators(old) or entity in creators(new)
            yield OwnerChange(entity, words, old_rule, new_rule, _note(old, new, old_rule, new_rule, made), made)


def _note(old: Rules, new: Rules, before: str | None, after: str | None, made: bool) -> str:
    if before is None:
        if after is not None and new.projections[after].action.first_only:
            return "values that exist stay, because it has `once`"
        return "" if made else "if the application writes it, its values are overwritten"
    if after is not None:
        return ""
    if stays := why_kept(old, before):
        return stays
    if before in new.projections and new.projections[before].hold:
        return "its values stay, because it is held"
    if before in new.projections:
        return "its values are removed once the new version is published"
    fates = {"remove": "its values are removed", "keep": "its values stay, and no rule updates them"}
    return fates.get(new.retired.get(before, ""), "`retired` does not set what happens to its values")


def template_changes(before: Deployment, after: Deployment) -> Iterator[str]:
    """Yield the changes of the template for the new rules."""
    tables = {table.name: table for table in before.tables}
    for table in after.tables:
        old = tables.pop(table.name, None)
        if old is None:
            yield f"table {table.name} is new"
            continue
        for name in _without(table, old):
            yield f"table {table.name}: index {name} is new"
        for name in _without(old, table):
            yield f"table {table.name}: index {name} is no longer in the rules, and would be deleted"
        if old.schema.ttl != table.schema.ttl:
            ttl, was = table.schema.ttl or "nothing", old.schema.ttl or "nothing"
            yield f"table {table.name}: items expire by {ttl}, before by {was}"
        if old.filters.patterns != table.filters.patterns:
            yield f"table {table.name}: the filters of the event source mapping match other keys"
        if _needs(old) != _needs(table):
            yield f"table {table.name}: the functions need other permissions"
    for name in tables:
        yield f"table {name} is no longer in the rules (it is kept, and no rule reads or writes it)"


def _without(table: TableNeeds, other: TableNeeds) -> list[str]:
    """Return the indexes of a table that another one lacks."""
    return [name for name in table.schema.indexes if name not in other.schema.indexes]


def _needs(table: TableNeeds) -> tuple[object, ...]:
    """Return what the permissions of the functions follow from."""
    return table.updates, table.deletes, table.children, table.queried


def impossible(before: Deployment, after: Deployment) -> Iterator[str]:
    """Yield changes that DynamoDB does not support, and another prefix of guards."""
    rules, prefix = before.program.model, after.program.model.guard_prefix
    if rules.projections and rules.guard_prefix != prefix:
        yield (
            f'guard_prefix changes from "{rules.guard_prefix}" to "{prefix}", which is impossible while rules are active. '
            f"Remove all rules first, with `retired`"
        )
    for old, table in _both(before, after):
        if (old.schema.partition, old.schema.sort) != (table.schema.partition, table.schema.sort):
            yield f"the key of table {table.name} changes, which is impossible. Use a new table with another name"
        for name, keys in table.schema.indexes.items():
            if name not in old.schema.indexes:
                if name in table.schema.local:
                    yield (
                        f"local index {name} is new, and a local index can be created only with its table. Make it global, "
                        "or use a new table with another name"
                    )
            elif old.schema.indexes[name] != keys or (name in old.schema.local) != (name in table.schema.local):
                yield f"the key of index {name} changes, which is impossible. Use a new index with another name"
            elif old.schema.projected_names(name) != table.schema.projected_names(name):
                yield (
                    f"the projection of index {name} changes, which is impossible. If the table's index has it already, "
                    "this only corrects the rules; otherwise use a new index with another name"
                )


def _both(before: Deployment, after: Deployment) -> Iterator[tuple[TableNeeds, TableNeeds]]:
    """Yield the tables that are in both, before and after."""
    tables = {table.name: table for table in before.tables}
    return ((tables[table.name], table) for table in after.tables if table.name in tables)
