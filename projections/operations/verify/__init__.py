"""Verification: is what is stored what the rules say? Reads only; `repair` is apart.

Tables are read once, by scans, and reduced to `facts` in a temporary file; what does not fit together there is a suspect.
Suspects are examined one by one, in the order in which the protocols read, and looked at again after a pause: what is
merely late is not drift. Sums of groups are told by the version that every commit raises.
"""
