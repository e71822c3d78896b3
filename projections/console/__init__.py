"""The console: a local, read-only page on live tables. `server` answers requests, `console_pages` makes HTML."""
