"""The table design of a rule file, gathered from its rules, queries and sample items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from projections.inspect.access_patterns import access_patterns
from projections.inspect.cost.reads import Shapes
from projections.inspect.design.capacity import read_costs, write_costs
from projections.inspect.design.checklist import checklist
from projections.inspect.design.model import Design
from projections.inspect.design.parts import attributes, entities, indexes
from projections.language.access.questions import queries_of, writes_of
from projections.language.keys import Image
from projections.language.models import Rules
from projections.language.program import Program
from projections.language.review import Review

__all__ = ["design_of"]

NOTHING = Review(None, ())


def design_of(rules: Rules, title: str, samples: Mapping[str, Sequence[Image]], review: Review = NOTHING) -> Design:
    """Return the table design of valid rules. `samples` are items by entity, `review` is that of their file."""
    program = Program.from_document(rules.canonical())
    document, shapes = program.typed, Shapes(program)
    patterns, writes = access_patterns(document, queries_of(rules)), tuple(writes_of(rules).values())
    queries = [one.query for one in patterns]
    known = tuple(entities(document, queries, samples))
    writers = tuple(attributes(rules, document, shapes, queries))
    design = Design(
        title=title,
        document=document,
        entities=known,
        indexes=tuple(indexes(document, patterns)),
        patterns=tuple(patterns),
        writes=writes,
        attributes=writers,
        reads=tuple(read_costs(shapes, patterns, writers, samples)),
        costs=tuple(write_costs(shapes, known, writes)),
    )
    return replace(design, checks=tuple(checklist(design, review)))
