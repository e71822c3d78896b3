"""Data models of other tools, read as proposals of rules."""
