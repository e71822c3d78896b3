"""Materialized views for DynamoDB, kept right by rules.

Packages, from the ground up. Each imports only from those above it in this list:

- `language`: key templates, patterns, rule models, loader, findings. Knows no AWS.
- `engine`: stream record → change → plan of effects → ledger, copies, indexes. Talks to a `Store` only.
- `stores`: DynamoDB and memory, answering alike.
- `operations`: backfill, verify, redrive, status, audit, worker.
- `aws`: clients, queues, buckets, metrics; the wiring of the deployed functions. The last package that is deployed.
- `local`: event source mapping, queues and replay on this machine.
- `deploy`: template, manifest, the functions' package, and whether a template fits rules.
- `inspect`: rehearsals, explanations, costs, differences and graphs of rules, as data.
- `init`: projects, and rules proposed from a sample of a table.
- `testing`: the pytest plugin, the oracle, the simulation.
- `dev`: rules on a live stream, reloaded as they change.
- `cli`: the commands, and all that is printed.
"""

__version__ = "0.1.0"
