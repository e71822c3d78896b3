"""Materialized views for DynamoDB, kept right by rules.

Five rooms, whose imports point one way only:

- `language`: key templates, patterns, rule models, loader, static analysis. Knows no AWS.
- `engine`: stream record → change → plan of effects → ledger, copies, indexes. Talks to a `Store` only.
- `stores`: DynamoDB and memory, answering alike.
- `operations`: what runs in Lambda and beside it: wiring, backfill, verify, redrive, status, audit.
- `tools`: the command line and what it offers: replay, simulate, explain, template.
"""

__version__ = "0.1.0"
