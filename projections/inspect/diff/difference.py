"""What a change of rules means, as one value: for rules, owners, stored items, the deployment, and what is to be done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from projections.deploy.needs import Deployment
from projections.inspect.diff.backfill import Cost, cost, reasons
from projections.inspect.diff.changes import Change, changes, renamed
from projections.inspect.diff.redeployment import impossible, new_indexes, template_changes
from projections.inspect.diff.traces import deletions, left_behind
from projections.language.canonical import Document
from projections.language.facts import EVERY, creators, origins
from projections.language.program import Program

__all__ = ["Difference", "Hand", "RuleDifference", "difference"]


@dataclass(frozen=True, slots=True)
class Hand:
    """An attribute that another rule writes than before. None stands for the application, or where items are made by
    rules (`made`) for nobody.
    """

    entity: str
    attribute: str
    before: str | None
    after: str | None
    note: str
    made: bool


@dataclass(frozen=True, slots=True)
class RuleDifference:
    """A rule that differs, with what follows: items that are deleted, and its backfill."""

    change: Change
    deletions: tuple[str, ...]
    backfill: tuple[str, ...]
    """Why it needs one."""
    cost: Cost | None
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """Everything. `deployment` says why the template has to be written again, `indexes` which are to be created."""

    rules: tuple[RuleDifference, ...]
    renamed: tuple[tuple[str, str, bool], ...]
    owners: tuple[Hand, ...]
    deployment: tuple[str, ...]
    indexes: tuple[tuple[str, str], ...]
    """Table and index."""
    impossible: tuple[str, ...]
    """What cannot be done to a table that exists."""
    unchanged: int

    @property
    def findings(self) -> bool:
        """Whether anything needs doing beyond what a deployment of the same rules would."""
        return bool(self.rules or self.deployment or self.impossible)

    def backfills(self) -> list[str]:
        return [one.change.rule for one in self.rules if one.backfill]

    @staticmethod
    def _stands_still(one: RuleDifference) -> bool:
        return one.change.status == "changed" and one.change.after is not None and one.change.after.recorded

    def steps(self) -> Iterator[str]:
        """What is to be done, in this order."""
        vanished = [one.change.rule for one in self.rules if one.change.status == "vanished"]
        if vanished:
            names = ", ".join(f"{name}: keep" for name in vanished)
            yield f"Say what becomes of what these rules wrote: `retired: {{{names}}}`, or `remove` for each."
        if self.impossible:
            yield "Take back what DynamoDB cannot do: a key never changes, neither of a table nor of an index."
        if self.deployment:
            yield "Write the template again (`projections template`), or edit yours and `projections check --template` it."
        if len(self.indexes) > 1:
            yield "Deploy one new index at a time: CloudFormation makes no more than one in an update of a table."
        if self.findings:
            yield "Build and deploy: the rules are in the package."
        removed = [one.change.rule for one in self.rules if one.change.fate == "remove"]
        if filled := [*self.backfills(), *removed]:
            deletes = any(one.deletions for one in self.rules)
            more = " with `--allow-delete`, after a look at what `--dry-run` would delete" if deletes else ""
            still = any(self._stands_still(one) for one in self.rules)
            until = " Until it is complete, counters, lists and claimed copies of rules that change stand still."
            yield f"Run `projections backfill`{more}: {', '.join(filled)}.{until if still else ''}"


def difference(before_document: Mapping[str, Any], after_document: Mapping[str, Any]) -> Difference:
    """Return what changes from one canonical document to another, both as JSON."""
    programs = [Program.from_document(document) for document in (before_document, after_document)]
    old, new = (program.typed for program in programs)
    found = changes(old, new)
    pairs = renamed(old, new, found)
    names = {gone: fresh for gone, fresh, _ in pairs}
    before, after = (Deployment("", program) for program in programs)
    return Difference(
        rules=tuple(_rule(old, new, change, names.get(change.rule)) for change in found),
        renamed=tuple(pairs),
        owners=tuple(_owners(old, new)),
        deployment=tuple(template_changes(before, after)),
        indexes=tuple(new_indexes(before, after)),
        impossible=tuple(impossible(before, after)),
        unchanged=len(new.rules) - sum(change.status in ("new", "changed") for change in found),
    )


def _rule(old: Document, new: Document, change: Change, renamed_to: str | None) -> RuleDifference:
    why = tuple(reasons(change))
    advice = ""
    if change.status == "vanished":
        name = change.rule
        if renamed_to:
            advice = (
                f"If it is `{renamed_to}` now, keep its old name and nothing needs doing; under the new one it is a new "
                f"rule, and `retired: {{{name}: remove}}` removes what `{renamed_to}` has not taken over."
            )
        else:
            advice = (
                f"A rule that vanishes is an error. `retired: {{{name}: keep}}` leaves what it wrote as it is, with nobody "
                f"to keep it up; `retired: {{{name}: remove}}` takes it back."
            )
    elif change.status == "changed":
        advice = left_behind(old, change)
    needs = change.status in ("new", "changed")
    return RuleDifference(
        change, tuple(deletions(old, new, change)), why, cost(new, change.rule) if needs and why else None, advice
    )


def _owners(old: Document, new: Document) -> Iterator[Hand]:
    before, after = origins(old), origins(new)
    for entity in dict.fromkeys((*before, *after)):
        mine, its = before.get(entity, {}), after.get(entity, {})
        for attribute in dict.fromkeys((*mine, *its)):
            one = mine[attribute].rule if attribute in mine else None
            other = its[attribute].rule if attribute in its else None
            if one == other:
                continue
            shown = "all attributes" if attribute == EVERY else attribute
            made = entity in creators(old) or entity in creators(new)
            yield Hand(entity, shown, one, other, _handed(new, one, other, made), made)


def _handed(new: Document, before: str | None, after: str | None, made: bool) -> str:
    if before is None:
        return "" if made else "what the application has there is overwritten"
    if after is not None:
        return ""
    fate = new.retired.get(before)
    if fate == "remove":
        return "it is removed"
    if before in new.rules:
        return "its backfill removes it"
    if fate == "keep":
        return "it stays where it is written, and nobody keeps it up"
    return "what becomes of it is not said"
