"""Run queries: `reads` binds a plan to the caller's values, `readers` read a table, `answers` joins and merges results."""
