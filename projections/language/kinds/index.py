"""`index`: key attributes of sparse indexes on the source item itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from pydantic import ConfigDict, RootModel

from projections.language.compiling import Kind
from projections.language.forms import Case, CaseForm
from projections.language.kinds import AnyProjection, AnyRules, ItemAction, Part, Picture, Result, Sources, WritePath
from projections.language.spelling import template_text
from projections.language.syntax import Location, Mistake, join_names, suggest


class Index(RootModel[CaseForm], ItemAction):
    """Keys of sparse indexes on the source item itself: the first case that matches applies."""

    model_config = ConfigDict(frozen=True)

    kind: ClassVar[Kind] = "index"
    aliases: ClassVar[tuple[str, ...]] = ("gsi", "sparse")
    makes_index_keys: ClassVar[bool] = True

    @property
    def cases(self) -> tuple[Case, ...]:
        return self.root

    @staticmethod
    def picture() -> Picture:
        return Picture("#bf1a66", "#ff8dba", '<circle cx="6.75" cy="6.75" r="4.25"/><path d="M10 10l3.5 3.5"/>')

    @property
    def written(self) -> dict[str, Location]:
        pairs = [(name, ("index", number, name)) for number, case in enumerate(self.cases) for name in case.set]
        first: dict[str, Location] = {}
        for name, place in pairs:
            first.setdefault(name, place)
        return first

    def parts(self) -> Iterator[Part]:
        for number, case in enumerate(self.cases):
            if case.where is not None:
                yield Part(case.where, ("index", number, "where"), decides=True)
            for name, template in case.set.items():
                yield Part(template, ("index", number, name), (name,), decides=True)

    def origins(self, sources: Sources) -> Iterator[tuple[str, str]]:
        for name in self.written:
            texts = [template_text(case.set[name]) for case in self.cases if name in case.set]
            yield name, " or ".join(dict.fromkeys(texts))

    def results(self, rules: AnyRules, rule: AnyProjection) -> dict[str, Result]:
        types = rules.table_of(rule.source).attribute_types
        return {name: Result(types.get(name)) for name in self.written}

    def advice_on_cycle(self, attribute: str) -> str:
        if [template_text(case.set[attribute]) if attribute in case.set else "" for case in self.cases] != [
            f"{{{attribute}}}"
        ]:
            return ""
        return f". Omit `{attribute}` from the rule: items have it already, so it is a key of the index without a rule"

    def mistakes(self, rules: AnyRules, rule: AnyProjection) -> Iterator[Mistake]:
        table = rules.table_of(rule.source)
        types = table.attribute_types
        indexed = sorted(types.keys() - set(table.key_names))
        for number, case in enumerate(self.cases):
            for attribute, template in case.set.items():
                place: Location = ("index", number, attribute)
                kind = types.get(attribute)
                if kind is None:
                    hint = suggest(attribute, indexed) or f": the keys of indexes are {', '.join(indexed) or 'none'}"
                    yield Mistake(place, f"is not a key attribute of a declared index{hint}", at_key=True)
                elif (kind == "N" and not template.alone) or (kind == "B" and template.single is None):
                    yield Mistake(place, typed(attribute, kind, computed=True))

    def gist(self, indexes: Sequence[str]) -> str:
        return ", ".join(indexes)

    def sentence(self, source: str, target: str, indexes: Sequence[str]) -> str:
        return f"Sets the keys of {join_names(indexes)} on {source} items, so that queries find them there."

    def write_path(self, each: str, indexes: Sequence[str]) -> WritePath:
        entries = f"1 entry in {' and 1 in '.join(indexes)}"
        how = f"1 conditional write on the item itself, which makes {entries}, if its key changes"
        return WritePath(self.kind, how, 1 + len(indexes))


def typed(attribute: str, kind: str, computed: bool = False) -> str:
    """Return why an attribute that is not text cannot have this template; a number may be `computed`."""
    word = "a number (N)" if kind == "N" else "binary (B)"
    one = "variable or expression" if kind == "N" and computed else "variable"
    return f"{attribute} is {word}: its template must be one {one}, nothing else"
