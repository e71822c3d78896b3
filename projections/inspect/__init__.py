"""Analyses of rules as data: rehearsals of batches, explanations, costs, differences, graphs."""
