"""Pictures of rules: `model` has the content, `layout` the positions; the formats are Mermaid, Graphviz DOT and HTML."""

from projections.inspect.graph.dot import dot
from projections.inspect.graph.mermaid import mermaid
from projections.inspect.graph.model import Graph, graph_of
from projections.inspect.graph.page import page

__all__ = ["Graph", "dot", "graph_of", "mermaid", "page"]
