"""`compute`: attributes of the source item itself, computed from its other attributes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from projections.language.compiling import Kind
from projections.language.forms import AttributeName, ComputedForm, Constant, Model
from projections.language.kinds import (
    AnyProjection,
    AnyRules,
    ItemAction,
    Part,
    Picture,
    Result,
    Sources,
    WritePath,
    result_of,
    value_words,
)
from projections.language.syntax import Location, Mistake, join_names


class Compute(Model, ItemAction):
    """Attributes of the source item, computed from its other attributes."""

    kind: ClassVar[Kind] = "compute"
    aliases: ClassVar[tuple[str, ...]] = ("formula", "generate")

    set: Annotated[dict[AttributeName, ComputedForm], Field(min_length=1)] = Field(
        description="Attribute → template (text with `{`), expression, `{value: …, where: {…}}`, `{constant: …}`, or a list "
        "of such cases; the first that matches applies."
    )
    once: bool = Field(
        default=False,
        description="Set the attributes only where they are absent, and never change or remove them afterwards.",
    )

    @staticmethod
    def picture() -> Picture:
        return Picture("#5d4037", "#d2a795", '<path d="M4.5 2.5h7v11h-7zM6.5 5h3M6.5 8h.5M9 8h.5M6.5 11h.5M9 11h.5"/>')

    @property
    def written(self) -> dict[str, Location]:
        return self.places(self.set, "set")

    def parts(self) -> Iterator[Part]:
        for name, cases in self.set.items():
            for number, case in enumerate(cases):
                place: Location = ("compute", "set", name, number)
                if case.where is not None:
                    yield Part(case.where, (*place, "where"), (name,))
                if not isinstance(case.value, Constant):
                    yield Part(case.value, (*place, "value"), (name,))

    def origins(self, sources: Sources) -> Iterator[tuple[str, str]]:
        for name, cases in self.set.items():
            yield name, " or ".join(dict.fromkeys(value_words(case.value) for case in cases))

    def results(self, rules: AnyRules, rule: AnyProjection) -> dict[str, Result]:
        results = {name: [result_of(case.value) for case in cases] for name, cases in self.set.items()}
        alike = {name: len({result.type for result in of_cases}) == 1 for name, of_cases in results.items()}
        return {name: of_cases[0] if alike[name] else Result() for name, of_cases in results.items()}

    def mistakes(self, rules: AnyRules, rule: AnyProjection) -> Iterator[Mistake]:
        table = rules.table_of(rule.source)
        for name in self.set.keys() & table.attribute_types.keys() - set(table.key_names):
            message = f"{name} is a key attribute of an index: set it with an `index` rule"
            yield Mistake(("compute", "set", name), message, at_key=True)

    @property
    def first_only(self) -> bool:
        return self.once

    def sentence(self, source: str, target: str, indexes: Sequence[str]) -> str:
        when = ", once: they stay as they are set first" if self.once else ""
        return f"Computes {join_names(list(self.set))} of {source} items from their other attributes{when}."

    def write_path(self, each: str, indexes: Sequence[str]) -> WritePath:
        once = ", once" if self.once else ", if a value changes"
        return WritePath(self.kind, f"1 conditional write on the item itself{once}", 1)
