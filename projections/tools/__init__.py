"""The tools: the command line and what stands behind its commands."""
