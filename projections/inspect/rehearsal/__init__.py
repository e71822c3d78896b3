"""Rehearsals: recorded events on tables in memory, every request written down with its units."""
