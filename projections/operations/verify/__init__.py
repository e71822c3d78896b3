"""Verification: compares the stored values with what the rules give. It only reads; `repair` writes.

Every item, entry and group is a subject, which `examine` reads in the order of the engine and compares exactly. A full
verification copies each table with one scan, and examines all subjects in the copy; those that differ there are examined in
the tables, and again after a pause, because late values are not drift. A sample, the audit and `explain --item` examine
subjects in the tables at once. Sums of groups are compared under the version that every commit raises.
"""
