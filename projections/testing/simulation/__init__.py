"""A deterministic simulation of the real engine, for any rule file: one integer decides a whole history.

The application's writes are generated from the rules' entities. A local event source mapping delivers their stream to the
engine. Each invocation stops before and after every call of the store, so that any two can interleave at any call; there
they crash, lose an answer, are throttled, or are abandoned and continue. At the end, the items must equal those of the
oracle, which is independent of the engine, and the ledger must be consistent.
"""

from projections.errors import MissingExtra

try:
    import greenlet  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtra("The simulation", "greenlet", "simulate") from error
