"""Inference of rules from a sample of a table. Pure functions."""
