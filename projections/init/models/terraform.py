"""Tables of a Terraform plan or state, as `terraform show -json` prints it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from projections.errors import UsageError
from projections.init.models.aws import KEY_TYPES
from projections.init.models.model import Model, Unread, proposal_of
from projections.init.models.parts import Part, WrongPart
from projections.init.table import Pairs, Table

__all__ = ["is_terraform", "read"]

_TABLE = "aws_dynamodb_table"
_OTHERS = {
    "aws_dynamodb_table_item": "items are not part of a rule file",
    "aws_dynamodb_global_secondary_index": "only indexes that are blocks of the table are read: add it to rules.yaml",
}


def is_terraform(document: Mapping[str, object]) -> bool:
    """Return whether a JSON document is a plan or state."""
    return "planned_values" in document or ("format_version" in document and "values" in document)


def read(document: Part) -> Model:
    """Return the tables of a plan or state. Raises UsageError if there is none."""
    version = document.get("format_version")
    if version is not None and not str(version.value).startswith(("0.", "1.")):
        raise version.wrong(f"unknown format version {version.value}: this command reads 0.x and 1.x")
    model = Model("Terraform plan", document.file, [], existing=True)
    if document.get("planned_values") is None:
        model.form = "Terraform state"
    values = document.get("planned_values") or document.need("values")
    for resource in _resources(values.need("root_module")):
        kind, mode = (str(one.value) if (one := resource.get(name)) else "" for name in ("type", "mode"))
        address = resource.need("address").text()
        if kind in _OTHERS:
            model.unread.append(Unread(address, _OTHERS[kind]))
        if kind != _TABLE or mode == "data":
            continue
        try:
            model.proposals.append(proposal_of(_table(resource.need("values")), []))
        except WrongPart as error:
            model.unread.append(Unread(f"{address} ({error.place})", error.reason))
    if not model.proposals:
        why = "; ".join(f"{one.place}: {one.reason}" for one in model.unread) or f"it has no resource of type {_TABLE}"
        raise UsageError(f"{document.file}: no table could be read from this {model.form}: {why}")
    return model


def _resources(module: Part) -> Iterator[Part]:
    yield from module.all("resources")
    for child in module.all("child_modules"):
        yield from _resources(child)


def _table(values: Part) -> Table:
    types = {
        one.need("name").text(): one.need("type").one_of(*KEY_TYPES)
        for one in values.need("attribute", "it is known only after apply").elements()
    }
    partition, sort = _key(values, types)
    indexes: dict[str, tuple[Pairs, Pairs]] = {}
    projected: dict[str, str | tuple[str, ...]] = {}
    local = set()
    for block in ("global_secondary_index", "local_secondary_index"):
        for index in values.all(block):
            name = index.need("name").text()
            if block == "local_secondary_index":
                indexes[name] = (partition, (_typed(index.need("range_key"), types),))
                local.add(name)
            else:
                indexes[name] = _key(index, types)
            kind = index.need("projection_type").one_of("ALL", "KEYS_ONLY", "INCLUDE")
            if kind == "KEYS_ONLY":
                projected[name] = "keys_only"
            elif kind == "INCLUDE":
                projected[name] = tuple(one.text() for one in index.need("non_key_attributes").elements())
    ttl = next((one.need("attribute_name").text() for one in values.all("ttl") if _true(one, "enabled")), None)
    view = values.get("stream_view_type") if _true(values, "stream_enabled") else None
    return Table(
        values.need("name", "it is known only after apply").text(),
        (*partition, *sort),
        indexes,
        ttl,
        view.text() if view is not None else None,
        projected=projected,
        local=frozenset(local),
    )


def _key(part: Part, types: Mapping[str, str]) -> tuple[Pairs, Pairs]:
    """Return the key in `hash_key` and `range_key`, or in the `key_schema` blocks that replace them."""
    schema = part.all("key_schema")
    if schema:
        found: dict[str, list[tuple[str, str]]] = {"HASH": [], "RANGE": []}
        for one in schema:
            found[one.need("key_type").one_of("HASH", "RANGE")].append(_typed(one.need("attribute_name"), types))
        if not found["HASH"]:
            raise part.wrong("no attribute has the key_type HASH: a key has a partition key")
        return tuple(found["HASH"]), tuple(found["RANGE"])
    sort = part.get("range_key")
    return (_typed(part.need("hash_key"), types),), (_typed(sort, types),) if sort and sort.value else ()


def _typed(name: Part, types: Mapping[str, str]) -> tuple[str, str]:
    if name.text() not in types:
        raise name.wrong(f"no attribute block has the type of {name.value}: add it")
    return name.text(), types[name.text()]


def _true(part: Part, name: str) -> bool:
    return (one := part.get(name)) is not None and one.value is True
