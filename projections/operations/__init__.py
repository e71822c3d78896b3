"""The operations on live tables: backfill, verify, redrive, status, audit, and the handlers of tasks and quarantine."""
