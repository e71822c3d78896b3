"""Backfill: projects items that existed before the rules, or before the rules changed, while the application writes."""
