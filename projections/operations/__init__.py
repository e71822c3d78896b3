"""The operations: what runs in Lambda and beside it: wiring from the environment, quarantine, and upkeep of live tables."""
