"""The comparison of a template with rules: `disagreements` lists where it differs from the generated one in its effect.

Names and layout may differ. Values from parameters without defaults, from imports and of existing tables cannot be
checked, which is reported.
"""

from __future__ import annotations

from collections.abc import Iterator

from projections.aws.wiring import Settings, agree
from projections.deploy.cloudformation import FUNCTION, TABLE, VARIABLES, Document, Resource
from projections.deploy.comparison import STREAM, Comparison, Pair, variables
from projections.deploy.delivery import delivery_findings
from projections.deploy.finding import (
    ENVIRONMENT,
    FUNCTIONS,
    NOT_JUDGED,
    RECURSION,
    SILENT_ALARMS,
    Finding,
    Severity,
)
from projections.deploy.needs import MAIN, Deployment
from projections.deploy.permissions import permission_findings
from projections.deploy.tables import table_findings
from projections.errors import Misconfigured
from projections.language.keys import Schema
from projections.language.mistakes import Location
from projections.language.program import LEDGER_SCHEMA

_HOW = ("POWERTOOLS_", "PUSH_", "AUDIT_")
"""Prefixes of variables that a template may set or omit."""

_NAMED = ("TABLE_NAME", "TABLES", "LEDGER_TABLE_NAME")


def disagreements(document: Document, deployment: Deployment) -> list[Finding]:
    """Return where a template does not agree with rules, and what cannot be checked, in the order of its lines."""
    every = dict.fromkeys(_findings(Comparison(document, deployment)))
    return sorted(every, key=lambda one: (one.line, one.column, one.code, one.reason))


def _findings(both: Comparison) -> Iterator[Finding]:
    yield from _functions(both)
    for pair in both.pairs:
        yield from _recursion(both, pair)
        yield from _environment(both, pair)
        yield from _new_rules(both, pair)
    for needs in both.deployment.tables:
        if needs.name in both.tables:
            called = "the table" if needs.name == MAIN else f"table {needs.name}"
            yield from _stored(both, needs.schema, both.tables[needs.name], called, streams=True)
    for pair in both.pairs:
        if ledger := both.text(variables(pair.theirs).get("LEDGER_TABLE_NAME", "")):
            yield from _stored(both, LEDGER_SCHEMA, ledger, "the ledger", streams=False)
    yield from delivery_findings(both)
    yield from _silent_alarms(both)
    for pair in both.pairs:
        yield from permission_findings(both, pair)


def _functions(both: Comparison) -> Iterator[Finding]:
    present = {pair.ours.id for pair in both.pairs}
    for ours in both.ours.of_type(FUNCTION):
        if ours.id not in present:
            severity: Severity = "error" if ours.properties["Handler"] == STREAM else "warning"
            reason = f"no function in this template has the handler {ours.properties['Handler']}"
            instead = f"copy {ours.id} from the output of `projections template`"
            yield both.finding(FUNCTIONS, ("Resources",), reason, instead, rated=severity)


def _silent_alarms(both: Comparison) -> Iterator[Finding]:
    """Yield the alarms that nobody receives, if the parameters keep their default values."""
    alarms = list(both.theirs.of_type("AWS::CloudWatch::Alarm"))
    silent = [alarm for alarm in alarms if not alarm.properties.get("AlarmActions")]
    if silent:
        names = ", ".join(alarm.id for alarm in silent[:3]) + (" and others" if len(silent) > 3 else "")
        reason = f"{len(silent)} of {len(alarms)} alarms notify nobody, unless a parameter names a topic: {names}"
        instead = "deploy with `AlarmTopicArn`, and `TicketTopicArn` for those that can wait, or set `AlarmActions`"
        yield both.finding(SILENT_ALARMS, silent[0].path(), reason, instead)


def _recursion(both: Comparison, pair: Pair) -> Iterator[Finding]:
    """Yield a worker whose messages to its own queue Lambda would stop."""
    wanted = pair.ours.properties.get("RecursiveLoop", "Terminate")
    given = pair.theirs.properties.get("RecursiveLoop", "Terminate")
    if wanted == "Allow" and given != "Allow":
        reason = (
            f"Lambda stops {pair.theirs.id} after about 16 messages to its own queue, so long pushes stop before they are "
            "complete"
        )
        path = pair.theirs.path("RecursiveLoop") if "RecursiveLoop" in pair.theirs.properties else pair.theirs.path()
        yield both.finding(RECURSION, path, reason, "RecursiveLoop: Allow")


# The environment


def _environment(both: Comparison, pair: Pair) -> Iterator[Finding]:
    function = pair.theirs
    given = {name: both.text(value) for name, value in variables(function).items()}
    streams = [part for part in given.get("STREAM_ARN", "").split(",") if both.names.judged(part)]
    if given.get("TABLES", "").startswith("${"):
        reason = f"TABLES of {function.id} is {given['TABLES']}, so these tables cannot be checked"
        yield both.finding(NOT_JUDGED, _place(both, function, "TABLES"), reason)
    else:
        try:
            settings = Settings.read({**given, "STREAM_ARN": ",".join(streams)})
            agree(settings.tables, [table.name for table in both.deployment.tables])
        except Misconfigured as error:
            yield both.finding(ENVIRONMENT, _place(both, function), f"{function.id}: {error}")
    for name, value in variables(pair.ours).items():
        if name not in given and not name.startswith(_HOW) and name not in (*_NAMED, "RULES_FILE"):
            reason = f"{function.id} has no environment variable {name}"
            instead = f"set it to {value}, as `projections template` does"
            yield both.finding(ENVIRONMENT, _place(both, function), reason, instead, rated="warning")


def _new_rules(both: Comparison, pair: Pair) -> Iterator[Finding]:
    """Yield rules that publish at once to a table that may hold data."""
    existing = [name for name in both.tables_of(pair.theirs).values() if _made(both, name) is None]
    if existing and both.text(variables(pair.theirs).get("NEW_RULES", "live")) == "live":
        reason = (
            f"NEW_RULES is live, but this template does not create {existing[0]}: rules would overwrite values in it"
        )
        path = _place(both, pair.theirs, "NEW_RULES")
        yield both.finding(
            ENVIRONMENT, path, reason, "set NEW_RULES to fill, and run `projections backfill`", rated="warning"
        )


def _place(both: Comparison, function: Resource, *name: str) -> Location:
    """Return the path of a variable: at the function, or in Globals."""
    for path in (function.path(*VARIABLES), ("Globals", "Function", *VARIABLES)):
        if both.document.at((*path, *name)) is not None:
            return (*path, *name)
    return function.path()


# Tables


def _made(both: Comparison, name: str) -> Resource | None:
    """Return the resource that creates a table; None if the table exists already."""
    return next((one for one in both.theirs.of_type(*TABLE) if both.names.of(one) == name), None)


def _stored(both: Comparison, schema: Schema, name: str, called: str, *, streams: bool) -> Iterator[Finding]:
    if (resource := _made(both, name)) is not None:
        yield from table_findings(both.document, resource, schema, called, streams=streams)
        return
    keys = " and ".join(f"{key} ({kind})" for key, kind in (schema.partition, schema.sort or ("", "")) if key)
    more = [f"indexes {', '.join(schema.indexes)}"] if schema.indexes else []
    more += ["a stream with NEW_AND_OLD_IMAGES"] if streams else []
    reason = f"this template does not create {called}, {name}, so its keys, indexes, stream and TTL cannot be checked"
    instead = f"it needs the key {keys}{''.join(f', {one}' for one in more)}: see `aws dynamodb describe-table`"
    yield both.finding(NOT_JUDGED, ("Resources",), reason, instead)
