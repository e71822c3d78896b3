"""The console: a local, read-only page on live tables. `server` answers requests, `pages` makes HTML."""
