"""The engine: stream record → change → plan of effects → ledger, copies, indexes.

Planning is pure: no clock, no network, no environment. Application talks to a `store.Store` and to nothing else.
"""
