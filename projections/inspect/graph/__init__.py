"""Pictures of rules: `model` has the content, `layout` the positions; the formats are Mermaid, Graphviz DOT and HTML."""

from projections.inspect.graph.model import Graph, graph_of
from projections.inspect.graph.page import page
from projections.inspect.graph.text import dot, mermaid

__all__ = ["Graph", "dot", "graph_of", "mermaid", "page"]
