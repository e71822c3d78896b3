"""The documentation of a query's function: its question, its requests, how fresh its results are, what it assumes."""

from __future__ import annotations

from collections.abc import Iterator

from projections.language.access.plan import Plan, Request, SortRange, Text
from projections.language.canonical import Document
from projections.language.patterns import describe
from projections.language.templates import Field

__all__ = ["paragraphs", "sentence"]


def paragraphs(document: Document, plan: Plan) -> list[str]:
    """Return the paragraphs of a docstring."""
    query = plan.query
    found = [sentence(query.about or _question(plan))]
    number = f"{query.id}. " if query.id else ""
    requests = " ".join(dict.fromkeys(_request(plan, request) for request in plan.requests))
    found.append(number + requests + (f" {sentence(plan.reason)}" if plan.reason else ""))
    found.append(" ".join(_freshness(document, plan)))
    if plan.assumes:
        found.append(f"Assumes that {'; '.join(plan.assumes)}.")
    return found


def sentence(text: str) -> str:
    """Return a text as a sentence."""
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith((".", "?", "!")) else ".")


def _question(plan: Plan) -> str:
    query = plan.query
    words = f"the {query.entities[0]}" if query.get else f"{' and '.join(query.entities)} items"
    if query.by:
        words += f" with the given {' and '.join(query.parameters)}"
    return words + (f" of which {describe(query.where)}" if query.where.conditions else "")


def _request(plan: Plan, request: Request) -> str:
    operation = "GetItem" if request.get and plan.query.get else "Query"
    keys = [f"{key.attribute} = {_text(key.text)}" for key in (*request.partition, *request.fixed)]
    if request.sort is not None:
        keys += _sort(request.sort)
    where = "the table" if request.index is None else request.index
    return f"{operation} of {where}: {', '.join(keys)}{', descending' if request.descending else ''}."


def _sort(sort: SortRange) -> Iterator[str]:
    if sort.bounded and sort.focus is not None:
        yield f"{sort.attribute} between {_text(sort.prefix)}{sort.focus} of the bounds"
    elif sort.until is not None:
        yield f"{sort.attribute} from {_text(sort.prefix)} to {_text(sort.until)}"
    elif sort.prefix:
        yield f"{sort.attribute} begins with {_text(sort.prefix)}"


def _text(text: Text) -> str:
    return "".join(
        part if isinstance(part, str) else str(part if isinstance(part, Field) else part.field) for part in text
    )


def _freshness(document: Document, plan: Plan) -> Iterator[str]:
    if plan.copy is not None:
        yield f"Returns copies, which rule {plan.copy} updates after their sources."
    if plan.rule is not None:
        yield f"Rule {plan.rule} writes the index keys, after the items."
    tables = {document.entities[entity].table for entity in plan.asked.entities}
    indexes = dict.fromkeys(request.index for request in plan.requests if request.index is not None)
    globals_ = [name for name in indexes if not any(document.tables[table].indexes[name].local for table in tables)]
    if globals_:
        yield f"{' and '.join(globals_)} may lag behind the table."
    elif plan.asked.consistent:
        yield "The read is strongly consistent."
    else:
        yield "The read is eventually consistent."
