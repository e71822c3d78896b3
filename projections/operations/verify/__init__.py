"""Verification: compares the stored values with what the rules give. It only reads; `repair` writes.

Scans read each table once, and reduce it to `facts` in a temporary file. Differences there are candidates, which are
examined one by one, in the order in which the engine reads, and again after a pause, because late values are not drift. Sums
of groups are compared under the version that every commit raises.
"""
