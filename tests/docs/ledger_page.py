"""docs/ledger.md: what this package stores, as `stored.yaml` describes it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from guide import ROOT

from projections.deploy.cloudformation import read_template
from projections.engine.store import Image
from tests.yaml_text import yaml_data

__all__ = ["ATTRIBUTES", "KINDS", "MESSAGE", "kind_of", "ledger_page"]


@dataclass(frozen=True)
class Kind:
    """A kind of item of the ledger.

    `roles` are the purposes of its writes. `kept` is its lifetime, `deletion` says whether a
    person may delete it. An attribute `marked_by` distinguishes it from another kind with the same keys.
    """

    name: str
    meaning: str
    partition: str
    sort: str
    attributes: dict[str, str]
    roles: list[str]
    kept: str
    deletion: str
    marked_by: str = ""

    def fits(self, partition: str, sort: str) -> bool:
        """Return whether an item with this key can be of this kind."""
        return bool(_pattern(self.partition).fullmatch(partition) and _pattern(self.sort).fullmatch(sort))

    def unknown(self, names: frozenset[str]) -> frozenset[str]:
        """Return the names of attributes that this kind does not have."""
        return frozenset(name for name in names if not any(self.is_name(known, name) for known in self.attributes))

    @staticmethod
    def is_name(known: str, name: str) -> bool:
        """Return whether an attribute has a name of `attributes`."""
        return _pattern(known).fullmatch(name) is not None


@dataclass(frozen=True)
class Attribute:
    """An attribute that rules add to items of the application, besides the derived values. `fields` are those of a map."""

    name: str
    meaning: str
    kept: str
    fields: dict[str, str] = field(default_factory=dict)


@cache
def _pattern(text: str) -> re.Pattern[str]:
    """Return the pattern of a text with `<…>`. Shards are numbers of fixed length."""
    parts = re.split(r"(<[^>]*>)", text)
    known = {"<version>": r"[^|]+\.\d+", "<shard>": r"\d\d", "<slot>": "[^|]+", "<lane>": "[0-9a-f]{10}"}
    pattern = "".join(known.get(one, ".+") if one.startswith("<") else re.escape(one) for one in parts)
    return re.compile(pattern, re.DOTALL)


_STORED = yaml_data((ROOT / "tests/docs/stored.yaml").read_text(encoding="utf-8"))
KINDS = [Kind(**kind) for kind in _STORED["ledger"]]
ATTRIBUTES = [Attribute(**attribute) for attribute in _STORED["items"]]
MESSAGE: dict[str, str] = _STORED["message"]


def kind_of(item: Image) -> Kind | None:
    """Return the kind of an item of the ledger; None if there is no such kind."""
    found = [
        kind for kind in KINDS
        if kind.fits(item["pk"]["S"], item["sk"]["S"]) and (not kind.marked_by or kind.marked_by in item)
    ]  # fmt: skip
    return found[0] if len(found) == 1 else None


INTRODUCTION = """\
# Stored items

<!-- Written by tests/docs/reference.py from tests/docs/stored.yaml. -->

Everything that this package stores: the items of the ledger, and the attributes that rules add to your items besides the
derived values. [How it works](how-it-works.md#what-is-stored) explains them with an example. [Personal
data](deployment.md#personal-data) lists what can be about a person.

Do not write to the ledger: use the commands. Do not delete items of it either, unless this page says so. Parts of a key are
separated by `|`. `<version>` is that of a rule, such as `likes.1`. `<source>`, `<target>`, `<parent>` and `<child>` are
*encoded keys*: the logical name of the table and the key, such as `main|POST#p1|METADATA`. A key that would be too long
ends with a hash; `key` then has the whole.

"""


MESSAGES = """\
## Queues and bucket

| | contents | kept |
| --- | --- | --- |
| quarantine | a message for each record that a rule could not use | {quarantine} days |
| task queue | pages of pushes and of runs of commands. Only this package writes and reads them | {tasks} days |
| dead letters | tasks that failed ten times | {dead} days |
| bucket, `aws/lambda/` | batches that Lambda discarded, as Lambda writes them, with their records | {bucket} days |
| bucket, `redriven/` | an empty object for each batch that was redriven: its key is that of the batch | {bucket} days |

`projections redrive` deletes messages after it has refreshed their items
([Handle a record that a rule cannot use](how-to/handle-a-bad-record.md)). Objects of the bucket remain. A message has:
"""


def ledger_page() -> str:
    """Return docs/ledger.md."""
    lines = ["| item | `pk` | `sk` |", "| --- | --- | --- |"]
    lines += [
        f"| [{kind.name}](#{kind.name.replace(' ', '-')}) | {_code(kind.partition)} | {_code(kind.sort)} |"
        for kind in KINDS
    ]
    lines += ["", "## Items of the ledger", ""]
    for kind in KINDS:
        lines += [*_section(kind), ""]
    lines += ["## On your items", ""]
    lines += [
        "Your application can ignore these attributes. If it replaces an item (`put`), the rules write them again. To read",
        "items without them, use [`reader`](reading.md#in-an-application). The prefix `~` is `guard_prefix` of the",
        "rule file.",
        "",
    ]
    for one in ATTRIBUTES:
        lines += [f"**{_code(one.name)}** {one.meaning} Kept {one.kept}.", ""]
        if one.fields:
            lines += [*_list(one.fields), ""]
    lines += [MESSAGES.format(**_retentions()), *_list(MESSAGE)]
    return INTRODUCTION + "\n".join(lines).rstrip("\n") + "\n"


def _retentions() -> dict[str, int]:
    """Return how many days the template keeps messages and objects."""
    resources = read_template(ROOT / "template.yaml").data["Resources"]
    queues = {"quarantine": "QuarantineQueue", "tasks": "TaskQueue", "dead": "TaskDeadLetters"}
    days = {
        name: int(resources[one]["Properties"]["MessageRetentionPeriod"]) // 86400 for name, one in queues.items()
    }  # fmt: skip
    (rule,) = resources["DiscardedBucket"]["Properties"]["LifecycleConfiguration"]["Rules"]
    return {**days, "bucket": int(rule["ExpirationInDays"])}


def _section(kind: Kind) -> Iterator[str]:
    yield f"### {kind.name}"
    yield ""
    answer, _, reason = kind.deletion.partition(": ")
    advice = {"no": "Do not delete it", "yes": "You may delete it"}[answer] + (f": {reason}" if reason else "")
    yield textwrap.fill(f"{kind.meaning} Kept {kind.kept}. {advice}.", 125, break_on_hyphens=False)
    yield ""
    yield from _list(kind.attributes)


def _list(meanings: Mapping[str, str]) -> Iterator[str]:
    return (f"- `{name}`: {meaning}" for name, meaning in meanings.items())


def _code(text: str) -> str:
    """Return code in a cell of a table."""
    return f"`{text}`".replace("|", "\\|")
