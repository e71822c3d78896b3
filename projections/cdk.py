"""The CDK construct in Python: a deployment of rules as a part of a stack.

    Projections(stack, "Projections", rules="rules.yaml", table=table)

It includes the template that `projections template` writes, and builds the functions' package as its option --package does.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aws_cdk import Annotations, Fn, Stack, Token
from aws_cdk.aws_cloudwatch import CfnAlarm
from aws_cdk.aws_dynamodb import CfnTable, ITable
from aws_cdk.aws_lambda import CfnFunction
from aws_cdk.aws_s3_assets import Asset
from aws_cdk.aws_sqs import CfnQueue
from aws_cdk.cloudformation_include import CfnInclude
from constructs import Construct

from projections.deploy.needs import MAIN
from projections.deploy.package import write_archive
from projections.deploy.plain import cdk_template
from projections.errors import UsageError

__all__ = ["Projections"]


class Projections(Construct):
    """The functions of a rule file, with ledger, queues, alarms and dashboard. A stack can have one.

    `table`: the table, or the tables by their names in the rules, with a stream of new and old images. Without it, the stack
    creates the tables. `parameters`: values of the template's parameters, which may be tokens, such as the ARN of a topic.
    `code`: the archive of `projections template --package`; without it, the archive is built. `notify`: the rules whose
    changes pipes send to an event bus.

    Raises RulesError, and UsageError for values that the template rejects.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002  as all constructs name it
        *,
        rules: str | Path,
        table: ITable | Mapping[str, ITable] | None = None,
        parameters: Mapping[str, str | int | bool] | None = None,
        code: str | Path | None = None,
        notify: Sequence[str] = (),
    ) -> None:
        super().__init__(scope, id)
        stack = Stack.of(self)
        if any(isinstance(construct, Projections) for construct in stack.node.find_all() if construct is not self):
            raise UsageError(f"stack {stack.stack_name} has projections already. Use a stack of its own for {id}")
        tables = {} if table is None else dict(table) if isinstance(table, Mapping) else {MAIN: table}
        values = {**_keys(tables), **{name: _text(value) for name, value in (parameters or {}).items()}}
        tokens = {name: value for name, value in values.items() if Token.is_unresolved(value)}
        known = {name: None if name in tokens else value for name, value in values.items()}
        template, suffixes = cdk_template(rules, known, existing=bool(tables), notify=tuple(notify))
        tokens |= _table_tokens(tables, suffixes)
        with tempfile.TemporaryDirectory() as directory:
            if code is None:
                code = Path(directory) / "functions.zip"
                _, remarks = write_archive(rules, code)
                for remark in remarks.splitlines():
                    Annotations.of(self).add_info(remark)
            package = Asset(self, "Package", path=str(code))
            file = Path(directory) / "template.json"
            file.write_text(json.dumps(template), encoding="utf-8")
            tokens |= {"CodeBucket": package.s3_bucket_name, "CodeKey": package.s3_object_key}
            self.template = CfnInclude(self, "Template", template_file=str(file), parameters=tokens)
        self._alarms = [key for key, part in template["Resources"].items() if part["Type"] == "AWS::CloudWatch::Alarm"]

    @property
    def stream_function(self) -> CfnFunction:
        return self._resource("StreamFunction")

    @property
    def worker_function(self) -> CfnFunction:
        return self._resource("WorkerFunction")

    @property
    def audit_function(self) -> CfnFunction:
        return self._resource("AuditFunction")

    @property
    def quarantine_queue(self) -> CfnQueue:
        return self._resource("QuarantineQueue")

    @property
    def ledger_table(self) -> CfnTable:
        """The ledger that the stack creates: with the parameter ExistingLedgerTableName, it creates none."""
        return self._resource("LedgerTable")

    @property
    def alarms(self) -> list[CfnAlarm]:
        return [self._resource(name) for name in self._alarms]

    def _resource(self, name: str) -> Any:
        return self.template.get_resource(name)


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _keys(tables: Mapping[str, ITable]) -> dict[str, str]:
    """Return the customer managed keys of the tables as a parameter."""
    keys = [table.encryption_key.key_arn for table in tables.values() if table.encryption_key is not None]
    return {"ExistingTableKeyArns": Fn.join(",", keys)} if keys else {}


def _table_tokens(tables: Mapping[str, ITable], suffixes: Mapping[str, str]) -> dict[str, str]:
    """Return name and stream of each table as parameters."""
    if tables and tables.keys() != suffixes.keys():
        named, needed = ", ".join(tables), ", ".join(suffixes)
        raise UsageError(f"the rules have the tables {needed}, and `table` has {named}. Pass all of them, or none")
    tokens: dict[str, str] = {}
    for name, table in tables.items():
        stream = table.table_stream_arn
        if stream is None:
            raise UsageError(f"table {name} has no stream: set `stream`, or name its stream in `from_table_attributes`")
        tokens |= {f"ExistingTableName{suffixes[name]}": table.table_name, f"ExistingStreamArn{suffixes[name]}": stream}
    return tokens
