"""Generated clients: a module with a function for each query of a rule file, item builders, and write requests.

`generate` assembles the module and makes the requests of write patterns, `queries` and `entities` make the other functions,
`expressions` their names, literals and lines, in Python; `typescript` prints them in TypeScript. `runtime` and
`rank_runtime` have the helpers that are copied into a module.
"""

from projections.inspect.client.generate import Client, client_of

__all__ = ["Client", "client_of"]
