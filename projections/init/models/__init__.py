"""Data models of other tools, read as proposals of rules, and rules written as NoSQL Workbench models."""
