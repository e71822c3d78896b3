"""`index`: key attributes of sparse indexes on the source item itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from pydantic import ConfigDict, RootModel

from projections.language.forms import Case, CaseForm
from projections.language.kinds import Action, Part, Sources, WritePath
from projections.language.spelling import template_text
from projections.language.syntax import Location, join_names


class Index(RootModel[CaseForm], Action):
    """Keys of sparse indexes on the source item itself: the first case that matches applies."""

    model_config = ConfigDict(frozen=True)

    kind: ClassVar[str] = "index"
    colours: ClassVar[tuple[str, str]] = ("#bf1a66", "#ff8dba")
    icon: ClassVar[str] = '<circle cx="6.75" cy="6.75" r="4.25"/><path d="M10 10l3.5 3.5"/>'
    makes_index_keys: ClassVar[bool] = True
    on_source: ClassVar[bool] = True
    makes_key: ClassVar[bool] = False

    @property
    def cases(self) -> tuple[Case, ...]:
        return self.root

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
                yield Part(case.where, ("index", number, "where"))
            for name, template in case.set.items():
                yield Part(template, ("index", number, name), (name,))

    def origins(self, sources: Sources) -> Iterator[tuple[str, str]]:
        for name in self.written:
            texts = [template_text(case.set[name]) for case in self.cases if name in case.set]
            yield name, " or ".join(dict.fromkeys(texts))

    def gist(self, indexes: Sequence[str]) -> str:
        return ", ".join(indexes)

    def sentence(self, source: str, target: str, indexes: Sequence[str]) -> str:
        return f"Sets the keys of {join_names(indexes)} on {source} items, so that queries find them there."

    def write_path(self, each: str, indexes: Sequence[str]) -> WritePath:
        entries = f"1 entry in {' and 1 in '.join(indexes)}"
        how = f"1 conditional write on the item itself, which makes {entries}, if its key changes"
        return WritePath(self.kind, how, 1 + len(indexes))
