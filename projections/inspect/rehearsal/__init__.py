"""Rehearsals: recorded events through the real processor on tables in memory, every request written down with its units.

What `explain` tells and what `cost` counts of a sample are requests of the engine itself, not of a second opinion of it.
"""
