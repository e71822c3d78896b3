"""Rules as a picture: `model` says what is in it, `layout` where, and three writers draw it: Mermaid, Graphviz DOT, HTML."""

from projections.tools.graph.dot import dot
from projections.tools.graph.mermaid import mermaid
from projections.tools.graph.model import Graph, graph_of
from projections.tools.graph.page import page

__all__ = ["Graph", "dot", "graph_of", "mermaid", "page"]
