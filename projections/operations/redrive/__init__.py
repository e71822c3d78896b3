"""Redrive: what was given up (quarantined, discarded, dead) becomes refreshes of the items it was about."""
