"""Run queries: `query_reads` binds a plan to the caller's values, `answers` reads a table, and joins and merges results."""
