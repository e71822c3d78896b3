"""Access patterns: which request answers a query, and why another does not.

`paths` has the ways to an entity's items, `patterns.implication` proves that an index holds all items that a query asks for,
`plan` is a plan as data, `planner` makes one.
"""
