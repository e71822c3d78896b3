"""Generated clients: a Python module with a function for each query of a rule file, item builders, and write requests.

`generate` assembles the module. `queries`, `entities` and `writes` make its functions, `keys` and `conditions` their
expressions. `runtime` has the helpers that are copied into it. `naming` makes safe names and literals, `layout` breaks
lines.
"""

from projections.inspect.client.generate import Client, client_of

__all__ = ["Client", "client_of"]
