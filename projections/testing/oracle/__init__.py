"""The oracle: what every derived value must be, recomputed from the items that the tables hold now.

It knows nothing of streams, ledgers or guards, and shares no code with what it judges: templates, pipes, patterns,
measures and rules are written a second time here, naively, from section 1 of the design. Where it and the engine
disagree, one of them misreads the rules.
"""

from projections.testing.oracle.differences import Difference, compare
from projections.testing.oracle.oracle import Expected, Oracle, expected

__all__ = ["Difference", "Expected", "Oracle", "compare", "expected"]
