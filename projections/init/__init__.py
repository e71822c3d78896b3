"""New projects: a small example, or rules inferred from a sample of a table."""
