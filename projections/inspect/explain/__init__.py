"""Explanations: why a record did what it did, or nothing; and where each derived value of an item came from."""
