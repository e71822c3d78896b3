"""Where a derived attribute comes from, told from the canonical rules: which rule writes it, and by what expression."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = [
    "EVERY",
    "Origin",
    "conditions",
    "creators",
    "entity_key",
    "key_text",
    "origins",
    "resolved_key",
    "target_of",
]

EVERY = "*"
"""Stands for all attributes, where a rule copies all."""

Document = Mapping[str, Any]
"""Canonical rules, or a part of them."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The rule that writes an attribute, and how it comes by the value, in the words of the rule file."""

    rule: str
    how: str


def target_of(rule: Document) -> str:
    """The entity that a rule writes to; an index writes to its source."""
    return str(rule.get("into", rule["from"]))


def origins(document: Document) -> dict[str, dict[str, Origin]]:
    """For each entity its derived attributes, with their origins."""
    found: dict[str, dict[str, Origin]] = {name: {} for name in document["entities"]}
    for name, rule in document["projections"].items():
        for attribute, how in _written(document, rule):
            found[target_of(rule)].setdefault(attribute, Origin(name, how))
    return found


def creators(document: Document) -> dict[str, str]:
    """The entities that exist only because of rules, with the rule that creates their items."""
    found: dict[str, str] = {}
    for name, rule in document["projections"].items():
        if rule["kind"] == "copy" or document["entities"][target_of(rule)]["derived"]:
            found.setdefault(target_of(rule), name)
    return found


def entity_key(document: Document, entity: str) -> str:
    """The key of an entity's items, as `USER#{userId} · PROFILE`."""
    return " · ".join(document["entities"][entity]["key"].values())


def key_text(document: Document, name: str) -> str:
    """The key of a rule's target as templates over its source, as `POST#{postId} · METADATA`."""
    return " · ".join(resolved_key(document, name).values())


def resolved_key(document: Document, name: str) -> dict[str, str]:
    """The key of a rule's target, attribute by attribute, as templates over its source."""
    rule = document["projections"][name]
    bound = rule.get("bind") or {}

    def resolved(match: re.Match[str]) -> str:
        return str(bound.get(match[1], match[0]))

    key = document["entities"][target_of(rule)]["key"]
    return {attribute: re.sub(r"\{(\w+)\*?\}", resolved, template) for attribute, template in key.items()}


def _written(document: Document, rule: Document) -> Iterator[tuple[str, str]]:
    source = rule["from"]
    match rule["kind"]:
        case "copy":
            if rule["attributes"] == "all":
                yield EVERY, f"{source}, all attributes"
            else:
                for target, path in rule["attributes"].items():
                    yield target, f"{source}.{path}"
            for target, value in rule["values"].items():
                yield target, str(value["template"] if "template" in value else value["constant"])
            entity = document["entities"][rule["into"]]
            for attribute in entity["match"] or {}:
                yield attribute, f"marks it as {rule['into']}"
        case "aggregate":
            for target, measure in rule["set"].items():
                yield target, _measure(measure, source)
        case "index":
            templates: dict[str, list[str]] = {}
            for case in rule["cases"]:
                for target, template in case["set"].items():
                    templates.setdefault(target, []).append(template)
            for target, found in templates.items():
                yield target, " or ".join(dict.fromkeys(found))
        case "top":
            yield rule["as"], f"{rule['limit']} of {source} by {rule['by']}"
        case "latest":
            for target, path in rule["attributes"].items():
                yield target, f"{source}.{path}, latest by {rule['by']}"
        case "embed":
            for target, path in rule["attributes"].items():
                yield target, f"{source}.{path}"


def _measure(measure: Document, source: str) -> str:
    function, expression, where = measure["function"], measure["expression"], measure["where"]
    text = f"{function}({expression}) of {source}" if expression else f"{function} of {source}"
    return f"{text} where {conditions(where)}" if where else text


def conditions(pattern: Document) -> str:
    """A pattern in short, as `status is published`, for people who know the rule and want to be reminded."""
    parts = []
    for name, alternatives in pattern.items():
        if name == "$or":
            parts.append(" or ".join(conditions(alternative) for alternative in alternatives))
        else:
            given = alternatives if isinstance(alternatives, list) else [alternatives]
            parts.append(" or ".join(f"{name} {_condition(alternative)}" for alternative in given))
    return " and ".join(parts)


def _condition(alternative: Any) -> str:
    if not isinstance(alternative, Mapping):
        return f"is {json.dumps(alternative, ensure_ascii=False).strip(chr(34))}"
    ((operator, operand),) = list(alternative.items())[:1]
    if operator == "exists":
        return "exists" if operand else "is absent"
    if operator == "numeric":
        return " ".join(str(part) for part in operand)
    return f"{operator} {json.dumps(operand, ensure_ascii=False)}"
