"""Backfill: projections for items that were there before the rules were, or before they changed, while traffic runs."""
