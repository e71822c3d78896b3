"""Output of commands with more than a few lines."""
