"""The sizes of cards and rules. Texts are measured without a browser, by upper estimates of character widths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from unicodedata import east_asian_width

from projections.inspect.graph.model import Entity, Graph, Rule
from projections.language.templates import Template

__all__ = ["Card", "card_of", "rule_size"]

_RULE_HEIGHT = 46
_MONO = 12 * 0.61  # no common fixed font is wider
_NAME = 15 * 1.12  # semi-bold
_RULE_NAME = 13 * 1.12
_GIST = 11.5
_LINE = 18
_HEAD = 40
_CHIP = 30
_NARROWEST_CARD, _WIDEST_CARD = 160, 320
_NARROWEST_RULE, _WIDEST_RULE = 110, 232
_CHARACTERS = 24


@dataclass(frozen=True, slots=True)
class Card:
    """An entity's card: its size, and its keys as (attribute, lines)."""

    width: float
    height: float
    label: float
    """The width of the column of attribute names."""
    keys: tuple[tuple[str, tuple[str, ...]], ...]
    table: str | None


def card_of(graph: Graph, entity: Entity) -> Card:
    """Return the card of an entity."""
    keys = tuple((attribute, _broken(template)) for attribute, template in entity.key)
    label = min(max(_fixed(attribute) for attribute, _ in keys), 120) + 12
    longest = max(_fixed(line) for _, lines in keys for line in lines)
    badges = 12 + (0 if entity.role == "application" else 62) + (40 if entity.expires else 0)
    table = entity.table if len(graph.tables) > 1 else None
    inside = graph.inside(entity.name)
    width = max(
        [
            _wide(entity.name, _NAME) + badges + 28,
            label + longest + 28,
            *(_wide(rule.name, _RULE_NAME) + _wide(rule.gist, _GIST) + 72 for rule in inside),
        ]
    )
    lines = sum(len(lines) for _, lines in keys)
    height = _HEAD + (_LINE if table else 0) + lines * _LINE + 10 + (len(inside) * _CHIP + 8 if inside else 0)
    return Card(min(max(width, _NARROWEST_CARD), _WIDEST_CARD), height, label, keys, table)


def rule_size(rule: Rule) -> tuple[float, float]:
    """Return width and height of a rule between two cards."""
    width = max(_wide(rule.name, _RULE_NAME), _wide(rule.gist, _GIST)) + 60
    return min(max(width, _NARROWEST_RULE), _WIDEST_RULE), _RULE_HEIGHT


_THIN, _THICK = frozenset("fijlrtI.,:;'|!()[]{}-/ "), frozenset("mwMW@%—…")


def _wide(text: str, size: float) -> float:
    """Return the estimated width of a text in a wide font."""
    return sum(size * _share(character) for character in text)


def _share(character: str) -> float:
    if east_asian_width(character) in "WF":
        return 1.1
    return 0.42 if character in _THIN else 1.0 if character in _THICK else 0.72 if character.isupper() else 0.64


def _fixed(text: str) -> float:
    return sum(_MONO * (2 if east_asian_width(character) in "WF" else 1) for character in text)


def _broken(template: str) -> tuple[str, ...]:
    """Return a key template in lines, broken before variables and separators where possible."""
    pieces: list[str] = []
    for part in Template.parse(template).parts:
        text = str(part) if not isinstance(part, str) else part.replace("{", "{{").replace("}", "}}")
        pieces += [text[start : start + _CHARACTERS] for start in range(0, len(text), _CHARACTERS)]
    lines: list[str] = [""]
    for piece in pieces:
        if lines[-1] and len(lines[-1]) + len(piece) > _CHARACTERS:
            lines.append("")
        lines[-1] += piece
    return tuple(_separators_first(lines))


def _separators_first(lines: Sequence[str]) -> list[str]:
    """Move separators at the end of a line to the next one, where they show that the key continues."""
    found = list(lines)
    for index in range(len(found) - 1):
        tail = len(found[index]) - len(found[index].rstrip("#|:/-_"))
        if 0 < tail < len(found[index]):
            found[index], found[index + 1] = found[index][:-tail], found[index][-tail:] + found[index + 1]
    return found
