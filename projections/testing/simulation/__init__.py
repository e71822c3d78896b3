"""A deterministic simulation of the real engine, for any rule file: one integer decides a whole history.

The application's writes are generated from the rules' entities. Their stream reaches the engine through the imitated
event source mapping; each invocation stands still before and after every call of the store, so that any two can
interleave at any call, and there they die, lose an answer, are throttled, or are taken for dead and go on. When all has
come to rest, the items must be what the oracle says, which knows nothing of the engine, and the ledger must be sound.
"""

from projections.errors import MissingExtra

try:
    import greenlet  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtra("The simulation", "greenlet", "simulate") from error
