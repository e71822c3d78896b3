"""The metrics that the functions emit, in words. The functions do not load this module: it lists what they count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["FRESHNESS", "METRICS", "NAMESPACE", "Metric"]

NAMESPACE = "Projections"
"""Unless the environment variable POWERTOOLS_METRICS_NAMESPACE of a function names another one."""


@dataclass(frozen=True, slots=True)
class Metric:
    """What a metric counts, and what a value above zero, or a rise, means to the people on call.

    `action` is Markdown with links to pages in docs/; empty if the value is only for information.
    """

    meaning: str
    action: str = ""
    unit: Literal["Count", "Seconds"] = "Count"


FRESHNESS = "freshness.<rule>"
"""In place of the rule's name: one metric for each rule."""

METRICS: dict[str, Metric] = {
    "records": Metric("records delivered"),
    "ignored": Metric(
        "delivered records that no rule uses",
        "many: check that the filters of the [template](operations.md#deploy) fit the rules",
    ),
    "applied": Metric("source items whose contributions were applied"),
    "duplicates": Metric(
        "source items whose change the ledger already had: redeliveries", "nothing to do: they change nothing"
    ),
    "deferred": Metric(
        "source items whose change exceeds the budget of a rule, and which the worker refreshes later",
        "see [large items](deployment.md#large-items)",
    ),
    "failed": Metric(
        "source items that could not be applied; Lambda delivers their records again",
        "see [IteratorAgeAlarm](alarms.md#iteratoragealarm)",
    ),
    "transactions": Metric(
        "transactions on the ledger, including cancelled ones",
        "more than `published`: many batches change one target at once, see `shards` in [Rules](rules.md#aggregate)",
    ),
    "published": Metric("targets written"),
    "copies": Metric("copies written or deleted"),
    "indexed": Metric("items whose index attributes or computed attributes were written"),
    "released": Metric("items that left their entity and lost the values that rules had set on them"),
    "healed": Metric(
        "targets corrected after another process wrote them",
        "does not return to 0: another process writes attributes that a rule owns",
    ),
    "rival": Metric("guards that another ledger replaced by its own", "above 0: two stacks maintain this table"),
    "embedded": Metric("children updated by a push"),
    "pulled": Metric("children that fetched their parent's attributes"),
    "rejected": Metric(
        "records, or children, sent to the quarantine", "[handle the records](how-to/handle-a-bad-record.md)"
    ),
    "repeated": Metric(
        "rejections that are not sent again: the record's old image was rejected for the same reason",
        "an item is edited, and stays as bad as it was",
    ),
    "filling": Metric(
        "rules that read a change, and of which a version is filling",
        "run [`projections apply`](operations.md#change-rules)",
    ),
    "gaps": Metric("versions of rules with `ledger: lanes` that may have missed changes", "count these rules again"),
    "cut": Metric(
        "lists of `top`, and of `embed` with `as`, written without some elements, because of the limits of "
        "32 KB and 100 references",
        "set a lower `limit`, or fewer `attributes`",
    ),
    "internal": Metric(
        "internal errors of this package; the log has a line `internal error` with the `trace` of each",
        "report the trace",
    ),
    "failures": Metric(
        "stream function: invocations with records to be retried; worker: tasks to be retried",
        "the log has the reason in lines with `to be retried`",
    ),
    "writesPerRecord": Metric("`published`, `healed` and `copies`, divided by `records` (at least 20)"),
    "throttled": Metric(
        "requests that DynamoDB throttled after four attempts; the log has the limit and the table or index",
        "[reduce throttling](runbooks/throttled.md)",
    ),
    FRESHNESS: Metric(
        "ages of the oldest and of the newest change that the rule read, at the end of the invocation: two "
        "values for each. Not what the worker makes later: pages of a push, and deferred changes",
        "[watch freshness](how-to/watch-freshness.md)",
        unit="Seconds",
    ),
    "tasks": Metric("messages that the worker received"),
    "pages": Metric("completed pages: of pushes, up to 1000 children each, and of runs of commands with `--queue`"),
    "pushes": Metric("completed pushes"),
    "refreshes": Metric("completed refreshes of source items that were deferred"),
    "audited": Metric("items that the audit verified"),
    "drift": Metric("differences that the audit found twice", "[repair the values](how-to/repair-wrong-values.md)"),
    "driftPerMillion": Metric("`drift` per million items of the audit's round", "the same"),
    "suspects": Metric("differences that the audit found once and will check again", "nothing to do: most are lag"),
}
"""The metrics by name, in the order of the page `metrics.md`: those of the stream function first. Docs and tests read it."""
