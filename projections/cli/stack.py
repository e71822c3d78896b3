"""The deployed resources and rules that a command works on: by its options, by --stack, or by the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from projections.aws.live_tables import LEDGER, Live, connect
from projections.cli.options import Tables, document_of, find_rules
from projections.errors import Misconfigured, RulesError, StoreError, UsageError
from projections.terminal import count, print_line

if TYPE_CHECKING:
    from projections.aws.deployed_stack import Maintainer, Stack
    from projections.aws.queues import Bucket, Queue
    from projections.engine.store import Store
    from projections.language.findings.kinds import Finding
    from projections.stores.dynamodb import Meter


_TABLE = "TableName"
_LEDGER = "LedgerTableName"

_FIRST = frozenset(("keys", "indexes", "stream", "ttl", "delivery", "filters", "permissions"))
"""The codes of findings without whose change rules would fail, or not see all items."""


class Chosen(NamedTuple):
    """The rules that a command uses, in canonical form.

    `note` says how a local rule file differs from those rules, or why it was not compared with them; `about_option` if that
    file was named with --rules.
    """

    document: Mapping[str, Any]
    note: str = ""
    about_option: bool = False


class Deployed:
    """The deployed resources that a command works on: from its options, else from the stack, else from the environment."""

    def __init__(self, options: Tables, stack: Stack | None) -> None:
        self.stack = stack
        self.region = options.region
        self._given = options
        self._outputs: Mapping[str, str] = stack.outputs if stack else {}
        self._waiting: Collection[tuple[str, str]] = ()
        """Rules and fingerprints of the versions in the registry that are maintained, and not published."""

    def name(self, option: str | None, output: str, variable: str = "") -> str | None:
        return option or self._outputs.get(output) or (os.environ.get(variable) if variable else None) or None

    @property
    def stack_name(self) -> str | None:
        return self.stack.name if self.stack else None

    def quarantine(self, option: str | None) -> str | None:
        return self.name(option, "QuarantineQueueUrl", "QUARANTINE_QUEUE_URL")

    def task_queue(self, option: str | None) -> str | None:
        return self.name(option, "TaskQueueUrl", "TASK_QUEUE_URL")

    def client(self, service: str) -> Any:
        """Return a client of an AWS service in the Region of the options."""
        from projections.aws.clients import client

        return client(service, region=self.region)

    def queue(self, url: str) -> Queue:
        from projections.aws.queues import Queue

        return Queue(self.client("sqs"), url)

    def bucket(self, name: str) -> Bucket:
        from projections.aws.queues import Bucket

        return Bucket(self.client("s3"), name)

    def connect(
        self,
        document: Mapping[str, Any],
        *,
        threads: int = 10,
        without_ledger: bool = False,
        other_indexes: bool = False,
        meter: Meter | None = None,
    ) -> Live:
        """Return the live tables under these rules. Raises UsageError, as `projections.aws.live_tables.connect`."""
        return connect(
            document,
            self._tables(document),
            self.name(self._given.ledger, _LEDGER),
            self._given.endpoint_url,
            self.region,
            threads=threads,
            without_ledger=without_ledger,
            other_indexes=other_indexes,
            meter=meter,
        )

    def mappings(self, live: Live, function: str | None = None) -> list[Mapping[str, Any]] | None:
        """Return the event source mappings of the stream's function; None if no function is named. Raises Transient."""
        from projections.aws.deployed_stack import event_source_mappings

        name = self.name(function, "StreamFunctionName")
        if name is None:
            return None
        return event_source_mappings(self.client("lambda"), name, self._streams(live))

    @staticmethod
    def _streams(live: Live) -> list[str]:
        described = (live.described[table] for table in live.program.tables)
        return [table["LatestStreamArn"] for table in described if table.get("LatestStreamArn")]

    def other_maintainers(self, live: Live, function: str | None = None) -> list[Maintainer]:
        """Return the other functions that maintain the same tables with another ledger. Raises Transient."""
        from projections.aws.deployed_stack import other_maintainers

        name, ledger = self.name(function, "StreamFunctionName"), live.names.get(LEDGER)
        if name is None or ledger is None:
            return []
        return other_maintainers(self.client("lambda"), name, ledger, self._streams(live))

    def findings(self, live: Live, mappings: Sequence[Mapping[str, Any]] | None) -> list[Finding]:
        """Return where the deployed tables and these mappings do not agree with the rules, as far as `compares_ttl`."""
        from projections.aws.live_tables import time_to_live
        from projections.deploy.comparison import LiveTable, live_findings

        tables = {
            logical: LiveTable(live.described[logical], time_to_live(live.client, real), mappings)
            for logical, real in live.names.items()
        }
        findings, unknown = live_findings(live.program, tables), ("TimeToLiveSpecification", "TumblingWindowInSeconds")
        return [each for each in findings if self.compares_ttl(live) or not each.path.endswith(unknown)]

    @staticmethod
    def compares_ttl(live: Live) -> bool:
        """Return whether `findings` compares TTL and tumbling windows: not on an emulator, because MiniStack has none."""
        from projections.aws.clients import is_emulated

        return not is_emulated(live.client.meta.endpoint_url)

    def permissions(self, live: Live) -> list[Finding]:
        """Return what the roles of the deployed template lack for the rules, and what of them cannot be checked.

        Raises Misconfigured if the template cannot be read.
        """
        from projections.aws.deployed_stack import deployed_template
        from projections.deploy.agreement import permission_findings
        from projections.deploy.cloudformation import template_of
        from projections.deploy.needs import Deployment

        if self.stack is None:
            raise Misconfigured("they are read from the template of a stack: pass --stack NAME")
        text = deployed_template(self.client("cloudformation"), self.stack.name)
        try:
            document = template_of(text, f"the template of {self.stack.name}")
        except RulesError as error:
            raise Misconfigured(str(error.problems[0])) from error
        return permission_findings(document, Deployment("", live.program))

    def warnings(self, live: Live, *, refuse: bool = False, permissions: bool = False) -> list[str]:
        """Return where the deployment does not agree with the rules, each with the way out; with `permissions`, also where
        its roles do not.

        With `refuse`, raises UsageError with what has to be deployed first: otherwise functions fail, or miss changes.
        """
        from projections.operations.health import maintainer

        texts: list[str] = []
        mappings = None
        try:
            mappings = self.mappings(live)
        except StoreError as error:
            texts.append(f"the filters of the event source mappings were not checked: {error}")
        findings = self.findings(live, mappings)
        if permissions:
            try:
                findings += self.permissions(live)
            except Misconfigured as error:
                texts.append(f"the permissions of the functions were not checked: {error}")
        lacking = [finding for finding in findings if finding.severity == "error" and finding.code in _FIRST]
        if refuse and lacking:
            raise UsageError(*map(_sentence, lacking))
        with suppress(StoreError):  # the caller may not read other functions
            for other in self.other_maintainers(live):
                finding = maintainer(*other, stack=self.stack_name)
                texts.append(f"{finding.says}. {finding.todo.removesuffix('.')}")
        return [*texts, *map(_sentence, findings)]

    def _tables(self, document: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the values of --table: those that are given, else those that name the stack's tables."""
        tables = {name.removeprefix(_TABLE): real for name, real in self._outputs.items() if name.startswith(_TABLE)}
        if self._given.tables or not tables:
            return self._given.tables
        if list(tables) == [""]:
            return (tables[""],)
        from projections.deploy.needs import Deployment
        from projections.language.program import Program

        needs = Deployment("", Program.from_document(document))
        return tuple(f"{table.name}={tables[table.suffix]}" for table in needs.tables if table.suffix in tables)

    def document(self, *, writes: bool = False) -> Mapping[str, Any]:
        """Return the rules that a command uses, as `rules` does, and print a note if a local file differs."""
        chosen = self.rules(refuse=writes)
        if chosen.note:
            print_line(f"note: {chosen.note}.", err=True)
        return chosen.document

    def rules(self, *, refuse: bool = False) -> Chosen:
        """Return the rules in the registry. Without a registry, those in the package of the stack's function; without a
        stack, those of --rules, $RULES or the rule file here.

        If --rules names a file that differs from the rules that the functions run, a command that writes should `refuse` it;
        others are told. Raises UsageError, and RulesError with every mistake in the file.
        """
        option = self._given.rules
        registered = self.registered_rules(pending=True, refuse=refuse)
        if registered is None and self.stack is None:
            return Chosen(document_of(find_rules(option)))
        try:
            document = registered if registered is not None else self._packaged_rules()
        except Misconfigured as error:
            if option is None:
                assert self.stack is not None
                raise UsageError(
                    f"stack {self.stack.name}: the deployed rules could not be read: {error}. Allow lambda:GetFunction, or "
                    "name the file of the deployed rules with --rules FILE"
                ) from None
            note = f"{option} was not compared with {self._runs}: {error}"
            return Chosen(document_of(find_rules(option)), note=note, about_option=True)
        if option is None:
            return Chosen(document, self._local_note(document))
        path = find_rules(option)
        local = document_of(path)
        difference = _difference(local, document, self._waiting)
        if not difference:
            return Chosen(document)
        differs = f"{path} differs from {self._runs} ({difference})"
        if refuse:
            raise UsageError(f"{differs}. Run `projections apply {path}` first, or omit --rules to use those rules")
        return Chosen(document, f"{differs}. `projections apply {path}` would change them", about_option=True)

    @property
    def _runs(self) -> str:
        place = f"stack {self.stack.name} runs" if self.stack is not None else "the functions run"
        return f"the rules that {place}"

    def ledger_store(self) -> Store | None:
        """Return a store of the ledger alone; None if no ledger is named."""
        from projections.aws.clients import client
        from projections.language.program import LEDGER_SCHEMA
        from projections.stores.dynamodb import DynamoDBStore

        name = self.name(self._given.ledger, _LEDGER, "LEDGER_TABLE_NAME")
        if name is None:
            return None
        dynamodb = client(endpoint_url=self._given.endpoint_url, region=self.region)
        return DynamoDBStore(dynamodb, {LEDGER: name}, {LEDGER: LEDGER_SCHEMA})

    def registered_rules(self, *, pending: bool = False, refuse: bool = False) -> Mapping[str, Any] | None:
        """Return the rules in the registry, as `Registry.document`; None without a registry. Raises Transient.

        Versions that this package cannot read are left out with a note; a command that writes should `refuse` them with a
        UsageError, because what it writes would have no part of them.
        """
        from projections.engine.registry import Registry
        from projections.language.kinds import FORMAT
        from projections.language.program import Program

        store = self.ledger_store()
        empty = {"format": FORMAT, "guard_prefix": "~", "tables": {}, "entities": {}, "projections": {}, "retired": {}}
        try:
            registry = Registry(Program.from_document(empty), store) if store is not None else None
            snapshot = registry.read() if registry is not None else None
        except (Misconfigured, StoreError):
            return None  # `connect` reports the table
        if registry is None or snapshot is None:
            return None
        readable, _ = registry.readable(snapshot)
        if unreadable := sorted(readable.stale - snapshot.stale):
            newer = "a newer version of dynamodb-projections registered this, and this one cannot read it"
            old = f"{', '.join(unreadable)}: {newer}"
            if refuse or not readable.maintained:
                raise UsageError(f"{old}. Install the version that the functions have")
            print_line(f"note: {old}. It is left out.", err=True)
        self._waiting = {(v.rule, v.fingerprint) for v in snapshot.maintained if v.state != "active"}
        return registry.document(readable, pending=pending)

    def _local_note(self, document: Mapping[str, Any]) -> str:
        """Return how a rule file that $RULES names, or that is here, differs from the rules that the functions run."""
        try:
            path = find_rules()
        except UsageError:
            return ""  # there is none
        try:
            difference = _difference(document_of(path), document, self._waiting)
        except RulesError as error:
            difference = f"it has {count(len(error.problems), 'mistake')}: run `projections check {path}`"
        if not difference:
            return ""
        return f"{path} differs from {self._runs} ({difference}). `projections apply` would change them"

    def _packaged_rules(self) -> Mapping[str, Any]:
        """Return the canonical rules in the package of the stream's function. Raises Misconfigured."""
        from projections.aws.deployed_stack import packaged_file
        from projections.language.program import Program

        function = self._outputs.get("StreamFunctionName")
        if function is None:
            raise Misconfigured("the stack has no output StreamFunctionName")
        path, content = packaged_file(self.client("lambda"), function, "RULES_FILE", "rules.json")
        try:
            document: dict[str, Any]
            if path.endswith(".json"):
                document = json.loads(content)
            else:
                from projections.language.loader import loads

                document = loads(content.decode(), f"{path} of {function}").document()
            Program.from_document(document)
        except (RulesError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise Misconfigured(
                f"function {function}: {path} was compiled by another version of dynamodb-projections "
                f"({type(error).__name__}: {error}). Use that version, or deploy the stack again with this one"
            ) from error
        return document


def find_deployed(options: Tables) -> Deployed:
    """Return the deployed resources. Raises UsageError for a stack of something else, Misconfigured for no stack."""
    if not options.stack:
        return Deployed(options, None)
    from projections.aws.clients import client
    from projections.aws.deployed_stack import describe_stack

    stack = describe_stack(client("cloudformation", region=options.region), options.stack)
    if _LEDGER not in stack.outputs:
        raise UsageError(
            f"stack {options.stack}: it has no output {_LEDGER}, so projections did not create it. Name another"
        )
    return Deployed(options, stack)


def _sentence(finding: Finding) -> str:
    """Return a finding and its way out in one line."""
    instead = f". {finding.instead[:1].upper()}{finding.instead[1:]}" if finding.instead else ""
    return finding.reason + instead


def _difference(local: Mapping[str, Any], document: Mapping[str, Any], waiting: Collection[tuple[str, str]]) -> str:
    """Return how rules differ from those that are deployed, such as `new: a; changed: b`; nothing if they are the same."""
    from projections.language.program import Program

    program, other = Program.from_document(local), Program.from_document(document)
    kinds: dict[str, list[str]] = {"new": [], "changed": [], "not published": [], "to be held": []}
    for name, rule in sorted(program.rules.items()):
        deployed = other.rules.get(name)
        if deployed is None:
            if rule.recorded or not rule.held:  # otherwise it is not registered
                kinds["new"].append(name)
        elif rule.fingerprint == deployed.fingerprint:
            if rule.held != deployed.held:
                kinds["to be held" if rule.held else "not published"].append(name)
        elif (name, rule.fingerprint) not in waiting:
            kinds["changed"].append(name)
        elif not rule.held:
            kinds["not published"].append(name)
    kinds["missing"] = sorted(other.rules.keys() - program.rules.keys())
    return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items() if names)
