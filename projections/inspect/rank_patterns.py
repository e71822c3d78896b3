"""The access patterns of rules of the kind `rank`: what they answer, and the reads that it takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from projections.language.canonical import Document, Rank
from projections.language.facts import entity_key
from projections.language.ranks import RANK_LEVELS_IN_SHARDS
from projections.language.syntax import an
from projections.language.templates import Template

__all__ = ["RankPattern", "items_of_rank", "rank_patterns"]


@dataclass(frozen=True, slots=True)
class RankPattern:
    """The ranks of a rule. `key` is that of a board, `inputs` are its variables.

    A rank, a percentile or a count takes one request, which reads `items`. A score at a position takes `requests`.
    """

    rule: str
    about: str | None
    board: str
    key: str
    inputs: tuple[str, ...]
    by: str
    items: int
    requests: int

    @property
    def question(self) -> str:
        """The question in words: the description of the rule, if it has one."""
        return self.about or f"The rank of a score ({self.by}) on {an(self.board)}"

    def document(self) -> dict[str, Any]:
        """Return the JSON."""
        return asdict(self)


def rank_patterns(document: Document) -> Iterator[RankPattern]:
    """Yield the access pattern of each rule of the kind `rank`, in the order of the file."""
    for name, rule in document.rules.items():
        if isinstance(rule, Rank):
            key = document.entities[rule.into].key.values()
            inputs = tuple(dict.fromkeys(variable for text in key for variable in Template.parse(text).names))
            about, shown = document.about_rule(name).description, entity_key(document, rule.into)
            yield RankPattern(name, about, rule.into, shown, inputs, rule.by, items_of_rank(rule), rule.scale.levels)


def items_of_rank(rule: Rank) -> int:
    """Return how many items of the ledger one request reads for a rank: one for each group, or for each of its shards."""
    levels = rule.scale.levels
    return levels + (rule.shards - 1) * min(levels, RANK_LEVELS_IN_SHARDS)
