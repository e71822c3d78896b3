"""`compute`: attributes of the source item itself, computed from its other attributes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from projections.language.arithmetic import Expression
from projections.language.forms import AttributeName, Computed, ComputedForm, Constant
from projections.language.kinds import Action, Model, Part, Sources, WritePath, places
from projections.language.kinds.copy import constant_words
from projections.language.spelling import expression_text, template_text
from projections.language.syntax import Location, join_names


class Compute(Model, Action):
    """Attributes of the source item, computed from its other attributes."""

    kind: ClassVar[str] = "compute"
    colours: ClassVar[tuple[str, str]] = ("#5d4037", "#d2a795")
    icon: ClassVar[str] = '<path d="M4.5 2.5h7v11h-7zM6.5 5h3M6.5 8h.5M9 8h.5M6.5 11h.5M9 11h.5"/>'
    on_source: ClassVar[bool] = True
    makes_key: ClassVar[bool] = False

    set: Annotated[dict[AttributeName, ComputedForm], Field(min_length=1)] = Field(
        description="Attribute → template (text with `{`), expression, `{value: …, where: {…}}`, `{constant: …}`, or a list "
        "of such cases; the first that matches applies."
    )
    once: bool = Field(
        default=False,
        description="Set the attributes only where they are absent, and never change or remove them afterwards.",
    )

    @property
    def written(self) -> dict[str, Location]:
        return places(self.set, "compute", "set")

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
            yield name, " or ".join(dict.fromkeys(map(computed_words, cases)))

    @property
    def first_only(self) -> bool:
        return self.once

    def type_of(self, name: str) -> str | None:
        types = {None if isinstance(case.value, Constant) else case.value.type for case in self.set[name]}
        return types.pop() if len(types) == 1 else None

    def sentence(self, source: str, target: str, indexes: Sequence[str]) -> str:
        when = ", once: they stay as they are set first" if self.once else ""
        return f"Computes {join_names(list(self.set))} of {source} items from their other attributes{when}."

    def write_path(self, each: str, indexes: Sequence[str]) -> WritePath:
        once = ", once" if self.once else ", if a value changes"
        return WritePath(self.kind, f"1 conditional write on the item itself{once}", 1)


def computed_words(case: Computed) -> str:
    """Return what a case computes, in the words of the rule file."""
    if isinstance(case.value, Constant):
        return constant_words(case.value)
    return expression_text(case.value) if isinstance(case.value, Expression) else template_text(case.value)
