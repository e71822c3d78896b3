"""The oracle: every derived value, recomputed from the items that the tables hold now.

It does not use streams or ledgers, and shares no code with the engine: templates, pipes, patterns, measures and rules are
implemented a second time, in the simplest way. If the two differ, one of them has a bug. Its input is
the canonical document, as data; of the language's code it uses only the types `ItemKey`, `Image` and `Value`.
"""

from projections.testing.oracle.oracle import Difference, Expected, Oracle

__all__ = ["Difference", "Expected", "Oracle"]
