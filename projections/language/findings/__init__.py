"""Findings: problems of valid rules that a careful reviewer would mention."""
