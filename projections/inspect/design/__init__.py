"""The table-design page: `design_of` gathers the data and the checklist, `markdown` writes the page."""

from dataclasses import replace

from projections.inspect.design.checklist import checklist
from projections.inspect.design.markdown import markdown
from projections.inspect.design.model import Design, gathered
from projections.language.document import Rules
from projections.language.review import Review

__all__ = ["Design", "design_of", "markdown"]


def design_of(rules: Rules, title: str, review: Review | None = None) -> Design:
    """Return the table design of valid rules. `review` is that of their file."""
    design = gathered(rules, title)
    return replace(design, checks=tuple(checklist(design, review or Review(None, ()))))
