"""`embed`: attributes of a parent, kept in every child that references it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from projections.language.attribute_sources import AttributeSource
from projections.language.compiling import Kind
from projections.language.embeds import children_of, parent_patterns
from projections.language.forms import AttributeName, AttributesForm, MatchForm, Model, rule_error
from projections.language.kinds import (
    Action,
    AnyProjection,
    AnyRules,
    Part,
    Picture,
    Result,
    Sources,
    WritePath,
    plain_document,
    result_of,
    source_words,
)
from projections.language.spelling import source_text
from projections.language.syntax import LanguageError, Location, Mistake, root
from projections.language.templates import Template


class Embed(Model, Action):
    """Attributes of a parent (the source), kept in every child that references it."""

    kind: ClassVar[Kind] = "embed"
    aliases: ClassVar[tuple[str, ...]] = ("enrich", "join", "lookup")
    without_key: ClassVar[tuple[str, str]] = ("its `match` selects the children", "use `on_delete`")
    makes_key: ClassVar[bool] = False

    into: str = Field(description="The entity of the children.")
    match: MatchForm = Field(
        description="How a child references its parent: its attribute or key variable → a template over the parent."
    )
    attributes: AttributesForm = Field(
        description="The attributes to embed: a list, or a mapping from name to path, expression or template."
    )
    on_delete: Literal["keep", "remove"] | None = Field(
        default=None,
        description="Whether the embedded attributes stay when the parent is deleted. Not allowed with `as`.",
        json_schema_extra={"default": "keep"},
    )
    as_: AttributeName | None = Field(
        default=None,
        description="The attribute of the child that holds what its parents give, if it references several: the child holds "
        "a list or set of references.",
    )
    references: str | None = Field(
        default=None,
        description="With `as`: the name in `match` that holds the references, if `match` has several names.",
    )
    form: Literal["list", "map"] | None = Field(
        default=None,
        description="With `as`: `list`, in the order of the references, or `map`, from each reference to its parent's "
        "attributes.",
        json_schema_extra={"default": "list"},
    )
    id: AttributeName | None = Field(
        default=None,
        description='With `as`: the name under which each element of the list holds its reference; default "id".',
    )
    missing: Literal["omit", "id"] | None = Field(
        default=None,
        description="With `as`: `omit` leaves out a reference without a parent, `id` keeps its place without attributes.",
        json_schema_extra={"default": "omit"},
    )

    @model_validator(mode="after")
    def _list(self) -> Embed:
        if self.as_ is None:
            for name in ("references", "form", "id", "missing"):
                if getattr(self, name) is not None:
                    raise rule_error(f"`{name}` is for children with several parents: add `as`, or remove `{name}`")
            return self._completed(on_delete=self.on_delete or "keep")
        if self.on_delete is not None:
            raise rule_error(
                "`on_delete` is for children with one parent: with `as`, write `missing: omit` or `missing: id`"
            )
        if self.references is None and len(self.match) > 1:
            raise rule_error(
                f"`match` has several names: write which of them holds the references, such as "
                f"`references: {next(iter(self.match))}`"
            )
        if self.references is not None and self.references not in self.match:
            raise rule_error(f"`references` must be a name in `match`: {', '.join(self.match)}")
        if self.form == "map" and self.id is not None:
            raise rule_error("`id` is for `form: list`: in a map, the reference is the key; remove `id`")
        self._completed(
            references=self.references or next(iter(self.match)),
            form=self.form or "list",
            id=self.id if self.form == "map" else self.id or "id",
            missing=self.missing or "omit",
        )
        if self.id in self.attributes:
            raise rule_error(f"`attributes` and `id` have the same name {self.id}: write another `id`")
        return self

    @staticmethod
    def picture() -> Picture:
        return Picture(
            "#2e7d1f",
            "#84d46f",
            '<rect x="2.5" y="2.5" width="11" height="11" rx="2"/><path d="M6 6h4v4"/><path d="M10 6l-4 4"/>',
        )

    @property
    def written(self) -> dict[str, Location]:
        return self.places(self.attributes, "attributes") if self.as_ is None else {self.as_: ("embed", "as")}

    @property
    def carried(self) -> Mapping[str, AttributeSource]:
        return self.attributes if self.as_ is None else {}

    def parts(self) -> Iterator[Part]:
        for name, template in self.match.items():
            yield Part(template, ("embed", "match", name))
        yield from self.attribute_parts(self.attributes, self.as_)

    def origins(self, sources: Sources) -> Iterator[tuple[str, str]]:
        (source,) = sources
        if self.as_ is not None:
            paths = ", ".join(map(source_text, self.attributes.values()))
            yield self.as_, f"{self.form} of {source} ({paths}) by {self.references}"
            return
        for name, attribute in self.attributes.items():
            yield name, source_words(attribute, source)

    def results(self, rules: AnyRules, rule: AnyProjection) -> dict[str, Result]:
        if self.as_ is None:
            return {name: result_of(source) for name, source in self.attributes.items()}
        if self.id is None:
            return {self.as_: Result("M", "makes it a map")}
        return {self.as_: Result("L", "makes it a list")}

    def final_mistakes(self, rules: AnyRules, name: str) -> Iterator[Mistake]:
        for question in (parent_patterns, children_of):
            try:
                question(plain_document(rules), name)
            except LanguageError as error:
                yield Mistake(("projections", name, "embed", "match"), error.message, at_key=True)

    def mistakes(self, rules: AnyRules, rule: AnyProjection) -> Iterator[Mistake]:
        """Yield references that cannot be a list or set, and a list in place of its references."""
        if self.as_ is None:
            return
        name = self.references
        assert name is not None
        place = ("embed", "match", name)
        if name in rules.entities[self.into].variables:
            message = f"{{{name}}} is in the key of {self.into}, so it cannot be a list or set of references"
            yield Mistake(place, f"{message}: name an attribute, or remove `as`", at_key=True)
        elif name in rules.table_of(self.into).attribute_types:
            message = f"{name} is the key of an index, so it cannot be a list or set of references"
            yield Mistake(place, f"{message}: name another attribute, or remove `as`", at_key=True)
        if self.as_ in map(root, self.match):
            message = f"the rule cannot write {self.as_}, because `match` reads it: write another name"
            yield Mistake(("embed", "as"), message)

    @property
    def matched(self) -> Mapping[str, Template]:
        return self.match

    @property
    def elements(self) -> tuple[str, ...]:
        return () if self.as_ is None or self.id is None else (self.id, *self.attributes)

    @property
    def several_parents(self) -> bool:
        return self.as_ is not None

    def sentence(self, source: str, target: str, indexes: Sequence[str]) -> str:
        if self.as_ is None:
            return f"Keeps attributes of each {source} in all {target} items that reference it."
        what = f"a {self.form} of the {source} items"
        return f"Keeps {what} that each {target} references in {self.references}, on the {target}."

    def write_path(self, each: str, indexes: Sequence[str]) -> WritePath:
        search = "children are found in their own item collection"
        if self.as_ is not None:
            search = "1 write of a link in the ledger for each new reference"
        elif indexes:
            search = f"children are found through {indexes[0]}, which lags, so a second pass follows"
        read = ", which is read with all its parents" if self.as_ is not None else ""
        return WritePath(self.kind, f"1 write for the push and 1 for each child{read}; {search}", 2)
