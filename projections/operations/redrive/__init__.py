"""Redrive: refreshes the items of quarantined records and discarded batches, and retries dead letters."""
