"""The table-design page: `gather` makes the data, `content` puts it into words, `markdown` writes it."""

from projections.inspect.design.gather import design_of
from projections.inspect.design.markdown import markdown, matrix
from projections.inspect.design.model import Design

__all__ = ["Design", "design_of", "markdown", "matrix"]
