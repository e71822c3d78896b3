"""The kinds of findings about rules, with their codes. `docs/findings.md` is generated from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["BASE", "CODES", "KINDS", "SEVERITIES", "Kind", "Severity"]

Severity: TypeAlias = Literal["error", "warning", "note"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
"""The most severe first.

- error: the rules cannot be used, or a rule can never work.
- warning: the rules will probably fail for some items, or under load.
- note: often intended, but worth knowing.
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of finding. Its first severity is the usual one.

    `example` has findings of this kind only. It is added to `BASE`, or it is a whole rule file if it has a table.
    """

    code: str
    severities: tuple[Severity, ...]
    summary: str
    why: str
    fix: str
    example: str


BASE = """\
table:
  key: [PK, SK]
  indexes:
    GSI1: [GSI1PK, GSI1SK]
    Ranking: {board: S, score: N}
entities:
  User: {key: {PK: "USER#{user}", SK: PROFILE}}
  Post: {key: {PK: "USER#{user}", SK: "POST#{post}"}, id: post}
  Like: {key: {PK: "POST#{post}", SK: "LIKE#{user}"}}
  Meta: {key: {PK: "POST#{post}", SK: META}}
  Total: {key: {PK: TOTAL, SK: "{what}"}}
projections:
  meta: {from: Post, copy: {into: Meta, attributes: [title, state]}}
  likes: {from: Like, aggregate: {into: Meta, set: {likes: count, stars: avg(stars)}}}
"""
"""The rule file that examples are added to. It has no findings."""


# Names

UNKNOWN_ATTRIBUTE = Kind(
    "unknown-attribute",
    ("warning",),
    summary="A rule reads an attribute that its source items never have.",
    why="Only rules write these items, and no rule writes this attribute. A condition on it never matches, and a key or a "
    "sum made of it never gets a value. Most often the name is misspelt.",
    fix="Correct the name, add the attribute to the rule that writes the items, or remove it from this rule.",
    example="""\
projections:
  open:
    from: Meta
    where: {sate: [open]}
    index: {GSI1PK: "{post}", GSI1SK: "{post}"}
""",
)
READS_GUARD = Kind(
    "reads-guard",
    ("warning",),
    summary="A rule reads a guard.",
    why="Rules write guards beside derived values, to order their own writes. A guard changes at every write of its rule, "
    "also if the values stay the same. It depends on the order of changes, and not only on the items.",
    fix="Read an attribute that the rule sets. If the attribute is the application's, set `guard_prefix` to another prefix "
    "before the first deployment.",
    example="""\
projections:
  counted:
    from: Meta
    where: {~likes: [{exists: true}]}
    bind: {what: counted}
    aggregate: {into: Total, shards: 8, set: {posts: count}}
""",
)
OTHER_SPELLING = Kind(
    "other-spelling",
    ("warning",),
    summary="Two names differ only in case, in a `$`, or in one letter.",
    why="`State`, `state` and `satte` are different attributes. A rule that reads the wrong one gets no value.",
    fix="Use one spelling. If the name is a variable of the target's key, set it with `bind` from the source's attribute.",
    example="""\
projections:
  open:
    from: Post
    where: {State: [open]}
    aggregate: {into: User, set: {openPosts: count}}
""",
)
READ_AS_WRITTEN = Kind(
    "read-as-written",
    ("warning", "note"),
    summary="A text is probably meant as an operator, a calculation or another value.",
    why="Text in a pattern is compared as a whole, a template makes text and calculates nothing outside its braces, and "
    "text in quotes in an expression is the name of an attribute. YAML 1.2 reads `yes`, `no`, `on` and `off` as text, which "
    "is a note.",
    fix="Write the form that the message shows. If the text is right, accept the finding; put `yes`, `no`, `on` and `off` "
    "in quotes.",
    example="""\
projections:
  popular:
    from: Like
    where: {stars: "> 3"}
    aggregate: {into: Meta, set: {popular: count}}
""",
)
NEVER_RECOGNISED = Kind(
    "never-recognised",
    ("warning",),
    summary="Items that rules create do not match their own entity.",
    why="The entity's `match` requires an attribute that no rule writes, so rules that read this entity ignore the items.",
    fix="Give the attribute a single value in `match`, so that rules set it on the items that they create, or remove it "
    "from `match`.",
    example="""\
entities:
  Archived: {key: {PK: "ARCHIVED#{post}", SK: A}, match: {type: [article, video]}}
projections:
  archive: {from: Post, copy: {into: Archived, attributes: [title]}}
""",
)
NEVER_MATCHES = Kind(
    "never-matches",
    ("warning",),
    summary="A condition compares a number with text, or has a name in braces that is read as text.",
    why="A comparison of a number with text never matches: `5` and `'5'` are different values. Only `=`, `!=`, `<`, `<=`, "
    "`>` and `>=` read `'{total}'` as the attribute total. Elsewhere it is text with braces.",
    fix='Write numbers without quotes and text in quotes. To compare with another attribute, write `{"=": "{total}"}`.',
    example="""\
projections:
  popular:
    from: Meta
    where: {likes: ["100"]}
    index: {GSI1PK: "{post}", GSI1SK: "{post}"}
""",
)

# Sort keys

UNPADDED_NUMBER = Kind(
    "unpadded-number",
    ("warning", "note"),
    summary="A sort key of type S contains a number without leading zeros.",
    why="Text sorts character by character, so 10 comes before 9. The severity is note if `check` only infers that the "
    "attribute is a number, for example because a rule adds it up.",
    fix="Pad the number with `pad(10)`, or with `invert(10)` for the greatest first. Averages and negative numbers cannot "
    "be padded: use a sort key of type N.",
    example="""\
projections:
  ranking:
    from: Meta
    index: {GSI1PK: "{post|bucket(4)}", GSI1SK: "{likes}#{post}"}
""",
)
PADDED_NUMBER = Kind(
    "padded-number",
    ("warning",),
    summary="A key attribute of type N is made of a padded number.",
    why="In the key of a target, a number has no leading zeros, as DynamoDB returns it. Padded text is bad input.",
    fix="Remove the pipe. Keys of type N sort by value.",
    example="""\
table: {key: {PK: S, rank: N}}
entities:
  Player: {key: {PK: "PLAYER#{player}", rank: "{level}"}}
  Ranked: {key: {PK: "RANKED#{player}", rank: "{position}"}, derived: true}
projections:
  ranked:
    from: Player
    bind: {position: "{score|pad(8)}"}
    aggregate: {into: Ranked, set: {players: count}}
""",
)
NUMBER_DOES_NOT_FIT = Kind(
    "number-does-not-fit",
    ("warning", "note"),
    summary="A rule pads a number that can be negative, fractional, or too long.",
    why="`pad` and `invert` take whole numbers of 0 or more, of at most the given number of digits. Other values are bad "
    "input: the rule does nothing for the item, and the record is quarantined.",
    fix="Use a sort key of type N for averages and negative numbers. Give counts 10 digits.",
    example="""\
projections:
  ranking:
    from: Meta
    index: {GSI1PK: "{post|bucket(4)}", GSI1SK: "{stars|pad(4)}"}
""",
)
DATE_ORDER = Kind(
    "date-order",
    ("warning",),
    summary="A date in a sort key does not begin with its greatest unit.",
    why="Text sorts from the left, so `31.01.2026` comes after `01.12.2026`. The items are not in the order of time.",
    fix="Write the year first and the smallest unit last: `date(%Y-%m-%d)`.",
    example="""\
projections:
  byDay:
    from: Like
    index: {GSI1PK: "{user}", GSI1SK: "{at|date(%d.%m.%Y)}"}
""",
)

# Limits

LONG_KEY = Kind(
    "long-key",
    ("note", "warning", "error"),
    summary="A key can be longer than DynamoDB allows.",
    why="A partition key has at most 2,048 bytes and a sort key 1,024. If a value makes the key longer, the rule does "
    "nothing for the item, and the record is quarantined. The severity is warning if the constant text alone needs "
    "most of the limit, and error if it exceeds the limit.",
    fix="Cut long values with `truncate`, which counts characters of up to 4 bytes, or shorten the constant text.",
    example="""\
projections:
  byTitle:
    from: Post
    index: {GSI1PK: "{user}", GSI1SK: "{title}"}
""",
)
HOT_PARTITION = Kind(
    "hot-partition",
    ("warning", "note"),
    summary="All items of an entity share one partition, or a few.",
    why="A partition accepts 1,000 write units a second. Beyond that, DynamoDB throttles writes. If an index is throttled, "
    "DynamoDB also throttles the application's own writes to the table.",
    fix="Spread the items over several partitions with `bucket`. Readers then query each of them and merge the results. If "
    "there are few writes, accept the finding.",
    example="""\
projections:
  newest:
    from: Meta
    index: {GSI1PK: ALL, GSI1SK: "{post}"}
""",
)
HOT_GROUP = Kind(
    "hot-group",
    ("warning", "note"),
    summary="All items of an entity contribute to one target, or to a few.",
    why="The ledger keeps one item for each target, which accepts about 500 transactions a second, of up to 99 changes "
    "each. Beyond that, derived values lag.",
    fix="Spread an aggregate with `shards`; its target stays one item. For `top` and `latest`, put a bucket into the "
    "target's key. If there are few changes, accept the finding.",
    example="""\
projections:
  allLikes:
    from: Like
    bind: {what: likes}
    aggregate: {into: Total, set: {likes: count}}
""",
)
MANY_CONTRIBUTIONS = Kind(
    "many-contributions",
    ("note",),
    summary="An item with a long list contributes to many targets.",
    why="A transaction has at most 100 actions, so a long list takes several transactions. The contributions of one item "
    "are limited to 190,000 bytes. Beyond that, the rule contributes nothing for the item.",
    fix="Keep the list shorter, or write its elements as items of their own.",
    example="""\
entities:
  Tag: {key: {PK: "TAG#{tag}", SK: STATS}, derived: true}
projections:
  tags:
    from: Post
    each: {tag: tags}
    aggregate: {into: Tag, set: {posts: count}}
""",
)
LONG_CHAIN = Kind(
    "long-chain",
    ("note",),
    summary="A rule's effect takes three or more passes through the stream.",
    why="A rule that reads what another rule writes runs when that write arrives in the stream. Each pass adds the lag of "
    "one rule: about a second and the batching window.",
    fix="If the delay is too long, read from the source of the first rule instead.",
    example="""\
projections:
  total:
    from: Meta
    bind: {what: "{post}"}
    aggregate: {into: Total, set: {likes: sum(likes)}}
  ranking:
    from: Total
    index: {board: "{what}", score: "{likes}"}
""",
)
MOVING_HISTORY = Kind(
    "moving-history",
    ("note",),
    summary="An aggregate depends on an attribute that an embed rule changes.",
    why="When the parent changes, an embed rule changes the attribute in all children. If an aggregate groups by the "
    "attribute, the contributions of all these children move to another target. If it measures the attribute, its totals "
    "change. For example, if a course gets another instructor, the revenue of earlier months moves, too.",
    fix="If that is not intended, add a `compute` rule with `once: true` that records the value in another attribute of the "
    "children, and let the aggregate read that attribute. See [History](rules.md#history).",
    example="""\
projections:
  author: {from: User, embed: {into: Post, match: {user: "{user}"}, attributes: {team: team}}}
  teams: {from: Post, bind: {what: "{team}"}, aggregate: {into: Total, set: {posts: count}}}
""",
)
ONCE_AND_PUTS = Kind(
    "once-and-puts",
    ("note", "warning"),
    summary="A put of the whole item removes a value that a rule records `once`.",
    why="If the application puts an item without the recorded value, the rule sets it again, from the current values. The "
    "severity is warning if `writes` has such a put, and there is no finding if `writes` has only other writes of the "
    "entity.",
    fix="Change such items with `UpdateItem`, or include the recorded value in the put, and declare the writes under "
    "`writes`.",
    example="""\
projections:
  sold: {from: Like, compute: {set: {paid: price}, once: true}}
""",
)
UNROUNDED_QUOTIENT = Kind(
    "unrounded-quotient",
    ("warning",),
    summary="A quotient can have more digits than a sum or a score accepts.",
    why="A quotient such as 1 / 3 has 38 digits, the maximum of DynamoDB. `sum` and `avg` accept at most 10 digits after "
    "the decimal point, so that totals are exact, and `rank` as many as `decimals`. Other numbers are bad input.",
    fix="Round the value: `sum(round(minutes / 60, 4))`.",
    example="""\
projections:
  rated: {from: Like, aggregate: {into: Meta, set: {rate: sum(stars / votes)}}}
""",
)
UNUSED_WITHIN = Kind(
    "unused-within",
    ("note",),
    summary="A rule that publishes nothing has a limit of its freshness.",
    why="`within` makes an alarm from the rule's freshness, which is not measured for rules that are disabled or in shadow "
    "mode. An empty dashboard can be mistaken for a healthy rule.",
    fix="Enable the rule and generate the template again, or remove `within`.",
    example="""\
projections:
  loved: {from: Like, enabled: false, within: 30s, aggregate: {into: Meta, set: {loved: count}}}
""",
)
READS_DISABLED = Kind(
    "reads-disabled",
    ("warning",),
    summary="A rule reads an attribute of a disabled rule.",
    why="A disabled rule writes nothing: its values do not change any more, and new items do not get them. A rule that "
    "reads them derives outdated values.",
    fix="Enable the other rule, or disable this rule as well.",
    example="""\
projections:
  loved: {from: Like, enabled: false, aggregate: {into: Meta, set: {loved: count}}}
  total:
    from: Meta
    bind: {what: "{post}"}
    aggregate: {into: Total, set: {loved: sum(loved)}}
""",
)

# Targets

SHARED_KEY = Kind(
    "shared-key",
    ("warning",),
    summary="Rules create items under keys that the application's items can have.",
    why="A table has at most one item per key. If the application has an item under this key, the derived item is not "
    "created until that item is removed. The quarantine and `projections verify` report it as `occupied`.",
    fix="Give derived items keys that no other entity has.",
    example="""\
entities:
  Info: {key: {PK: "POST#{info}", SK: STATS}, match: {type: Info}}
  Stats: {key: {PK: "POST#{post}", SK: STATS}, match: {type: Stats}, derived: true}
projections:
  stats: {from: Like, aggregate: {into: Stats, set: {likes: count}}}
""",
)
NOT_DERIVED = Kind(
    "not-derived",
    ("warning",),
    summary="A rule computes its target's key, but does not create the target.",
    why="Without `derived: true` a rule only sets attributes on items that exist. The application would have to create one "
    "item for each computed value, for example for each day.",
    fix="Add `derived: true` to the entity if only rules write its items.",
    example="""\
entities:
  Day: {key: {PK: "DAY#{user}", SK: "{day}"}}
projections:
  perDay:
    from: Like
    bind: {day: "{at|date(%Y-%m-%d)}"}
    aggregate: {into: Day, set: {likes: count}}
""",
)
CLAIMED_COPY = Kind(
    "claimed-copy",
    ("note",),
    summary="A copy goes through the ledger because two sources could have the same target.",
    why="If several sources can have one target, the ledger decides which of them is copied. That costs 7 write units "
    "instead of 1.",
    fix="If the variable that the message names identifies the source item, declare it as `id` of the source's entity.",
    example="""\
entities:
  Liked: {key: {PK: "LIKED#{user}", SK: L}}
projections:
  liked: {from: Like, copy: {into: Liked, attributes: [at]}}
""",
)
COPIED_INDEX_KEY = Kind(
    "copied-index-key",
    ("warning",),
    summary="`attributes: all` also copies the keys of an index.",
    why="Each copy then appears in the index beside its source, and queries of the index return both.",
    fix="List the attributes to copy. If copies belong in the index, write an index rule for them.",
    example="""\
entities:
  Public: {key: {PK: "PUBLIC#{user}", SK: P}}
projections:
  byName: {from: User, index: {GSI1PK: "{user}", GSI1SK: "{user}"}}
  public: {from: User, copy: {into: Public, attributes: all}}
""",
)
DERIVED_TTL = Kind(
    "derived-ttl",
    ("warning", "note"),
    summary="A rule writes the TTL attribute of items that rules create.",
    why="If DynamoDB deletes such an item, the rules create it again as long as it has a source, with the same TTL: it is "
    "deleted and created without end, which costs writes. The severity is note if a copy has the TTL of its source, "
    "because both end at the same time.",
    fix="Let no rule write the attribute. A derived item is removed with its last source: let the sources expire, with "
    "`expired: retract`.",
    example="""\
table: {key: [PK, SK], ttl: expiresAt}
entities:
  Event: {key: {PK: "EVENT#{event}", SK: E}, expires: true}
  Day: {key: {PK: "DAY#{day}", SK: D}, derived: true}
projections:
  days:
    from: Event
    expired: keep
    aggregate: {into: Day, set: {events: count, expiresAt: max(number(keepUntil))}}
""",
)
LARGE_LIST = Kind(
    "large-list",
    ("note",),
    summary="A list can exceed 32 KB.",
    why="A list that a rule maintains has at most 32 KB; elements beyond that are left out. Each change writes the whole "
    "list, which costs about 32 write units.",
    fix="List fewer elements, or leave out attributes that readers can look up.",
    example="""\
projections:
  newest:
    from: Like
    top: {into: Meta, as: newest, by: at, limit: 50, attributes: [at, text]}
""",
)
LARGE_LISTS = Kind(
    "large-lists",
    ("warning",),
    summary="Several lists on one item can together exceed 100 KB.",
    why="An item has at most 400 KB, including the application's attributes. Beyond that, the application's own updates of "
    "the item fail.",
    fix="List fewer elements, or put lists on an item of their own: an entity with `derived: true`.",
    example="""\
projections:
  a: {from: Like, top: {into: Meta, as: newest, by: at, limit: 16, attributes: [text]}}
  b: {from: Like, top: {into: Meta, as: best, by: stars, limit: 16, attributes: [text]}}
  c: {from: Like, top: {into: Meta, as: longest, by: length, limit: 16, attributes: [text]}}
  d: {from: Like, top: {into: Meta, as: oldest, by: age, limit: 16, attributes: [text]}}
""",
)
WRONG_TYPE = Kind(
    "wrong-type",
    ("error",),
    summary="A number is copied to an index key of type S.",
    why="DynamoDB rejects an item whose key attribute has another type, so no copy is ever written.",
    fix="Declare the key with type N under `indexes`, or write text with `values` and `pad`.",
    example="""\
entities:
  Card: {key: {PK: "CARD#{post}", SK: C}}
projections:
  cards: {from: Meta, copy: {into: Card, attributes: {GSI1PK: likes, GSI1SK: title}}}
""",
)

# Indexes

HALF_AN_INDEX_KEY = Kind(
    "half-an-index-key",
    ("warning", "note"),
    summary="A rule sets only a part of an index's key.",
    why="DynamoDB puts an item into an index only if it has all key attributes of the index. The severity is note if "
    "the application may write the rest.",
    fix="Set the other attribute in the same rule. If the application writes it, declare that with `index_key` on the "
    "entity.",
    example="""\
projections:
  byPost: {from: Meta, index: {GSI1PK: "{post}"}}
""",
)
AMBIGUOUS_INDEX_KEY = Kind(
    "ambiguous-index-key",
    ("note",),
    summary="The partition key of an index is made of an attribute that may contain the separator.",
    why="Variables of keys never contain the separator, attributes may. With `OPEN#{account}#{doc}`, the account `a#b` and "
    "the document `c` have the same key as the account `a` and the document `b#c`. So a user who can set the attribute can "
    "put an item into the list of another user.",
    fix="Use a variable of the key, move the attribute to the end of the template, or list its values in `where`. "
    "Otherwise, let the application refuse values that contain the separator.",
    example="""\
projections:
  byPlace: {from: Post, index: {GSI1PK: "PLACE#{country}#{city}", GSI1SK: "{post}"}}
""",
)
UNREACHABLE_CASE = Kind(
    "unreachable-case",
    ("warning",),
    summary="A case of an index rule never applies.",
    why="The first case that matches applies, and an earlier case has the same `where`.",
    fix="Merge the cases, or change one of the conditions.",
    example="""\
projections:
  byState:
    from: Post
    index:
      - {where: {state: [open]}, GSI1PK: "OPEN#{user}", GSI1SK: "{post}"}
      - {where: {state: [open]}, GSI1PK: "TODO#{user}", GSI1SK: "{post}"}
""",
)
NOT_PROJECTED = Kind(
    "not-projected",
    ("note",),
    summary="An index does not project all attributes that a rule needs.",
    why="A rule that finds children through an index needs three things of each child: the attributes that determine its "
    "entity, its reference to the parent, and the rule's guard (`~author` in the example). Attributes that the index does "
    "not project are read from the table: a change of the parent reads each child twice, at one read unit per 4 KB.",
    fix="Often no change is needed: if you add the guard to the projection, each update of a child also writes the index, "
    "and these writes cost more than the reads. If children are large, list the attributes in `projection`.",
    example="""\
table: {key: [PK, SK], indexes: {GSI1: {partition: GSI1PK, projection: keys_only}}}
entities:
  User: {key: {PK: "USER#{user}", SK: PROFILE}}
  Comment: {key: {PK: "COMMENT#{comment}", SK: C}, index_key: {GSI1PK: "{user}"}}
projections:
  author: {from: User, embed: {into: Comment, match: {user: "{user}"}, attributes: {userName: name}}}
""",
)
CHILDREN_NOT_INDEXED = Kind(
    "children-not-indexed",
    ("warning",),
    summary="An embed rule finds children through an index in which some of them are missing.",
    why="An item is in an index only if it has all key attributes of this index. An index rule sets none of them if a "
    "template lacks a value. A change of the parent then does not update the child: its embedded values are outdated, or "
    "absent if the child is older than the parent. `verify` reports the difference.",
    fix="If every child has the attribute, add it to `required` of the entity. Otherwise use only key variables in the key "
    "of this index, or put the children into the partition of their parent, so that no index is needed.",
    example="""\
projections:
  byUser: {from: Like, index: {GSI1PK: "USER#{user}", GSI1SK: "{at}"}}
  user: {from: User, embed: {into: Like, match: {user: "{user}"}, attributes: {userName: name}}}
""",
)
MANY_INDEXES = Kind(
    "many-indexes",
    ("note", "error"),
    summary="A table has many indexes.",
    why="Each index is stored, and written when an attribute that it projects changes. One index can serve several kinds of "
    "items, so 3 are usually enough. DynamoDB creates at most 20 global indexes (a quota that AWS can raise) and 5 local "
    "ones: with more, the severity is error.",
    fix="Let several kinds of items share the key attributes of one index, project less, or remove indexes that no query "
    "uses.",
    example="""\
table: {key: [PK, SK], indexes: {A: [a], B: [b], C: [c], D: [d]}}
entities:
  User: {key: {PK: "USER#{user}", SK: PROFILE}}
""",
)
LOCAL_INDEX = Kind(
    "local-index",
    ("note",),
    summary="A table has a local index.",
    why="All items of one partition key, with their entries in local indexes, can then have at most 10 GB. Beyond that, "
    "writes fail. Without a local index there is no such limit. A local index can be created only with its table, and not "
    "deleted. Its writes count against the capacity of the table.",
    fix="If a partition may grow beyond 10 GB, use a global index. It is eventually consistent.",
    example="""\
table: {key: [PK, SK], indexes: {ByDate: {sort: at, local: true}}}
entities:
  Order: {key: {PK: "CUSTOMER#{customer}", SK: "ORDER#{order}"}}
""",
)

# TTL

EXPIRY_UNDECIDED = Kind(
    "expiry-undecided",
    ("note",),
    summary="A table has a TTL attribute, but no entity declares that its items expire.",
    why="A deletion by TTL then counts like any other deletion: the item's contributions are retracted, and counters go "
    "down.",
    fix="Add `expires: true` to the entities whose items expire, and `expired: keep` or `expired: retract` to their rules.",
    example="""\
table: {key: [PK, SK], ttl: expiresAt}
entities:
  Session: {key: {PK: "USER#{user}", SK: "SESSION#{session}"}}
  User: {key: {PK: "USER#{user}", SK: PROFILE}}
projections:
  sessions: {from: Session, aggregate: {into: User, set: {sessions: count}}}
""",
)
NO_TTL = Kind(
    "no-ttl",
    ("warning",),
    summary="Items of an entity expire, but their table has no TTL attribute.",
    why="The template that `projections template` writes enables TTL only for tables with `ttl`, so nothing expires.",
    fix="Add `ttl` to the table, with the name of the TTL attribute.",
    example="""\
table: {key: [PK, SK]}
entities:
  Session: {key: {PK: "USER#{user}", SK: "SESSION#{session}"}, expires: true}
  User: {key: {PK: "USER#{user}", SK: PROFILE}}
projections:
  sessions: {from: Session, expired: keep, aggregate: {into: User, set: {sessions: count}}}
""",
)

# Queries

UNANSWERED_QUERY = Kind(
    "unanswered-query",
    ("warning",),
    summary="No request returns all items of a query's answer.",
    why="Only a scan could answer the query, or the index that fits does not hold all items of the answer. The rules "
    "work without the query. If a scan may answer it, for example for an export, accept the finding with a "
    "comment.",
    fix="Add the rule, index or condition that the message proposes. `check` has verified that it answers the query.",
    example="""\
table: {key: [PK, SK]}
entities:
  Post: {key: {PK: "USER#{user}", SK: "POST#{post}"}, id: post}
queries:
  byTopic: {find: Post, by: [topic], order: createdAt desc}
""",
)
UNPROJECTED_QUERY = Kind(
    "unprojected-query",
    ("warning",),
    summary="A query needs attributes that its index does not project.",
    why="An index returns only its key attributes and those that it projects. The application would have to read each item "
    "again from the table.",
    fix="Project the attributes, or leave them out of the query.",
    example="""\
table:
  key: [PK, SK]
  indexes: {GSI1: {partition: GSI1PK, projection: [title]}}
entities:
  Post: {key: {PK: "USER#{user}", SK: "POST#{post}"}, id: post, index_key: {GSI1PK: "POST#{post}"}}
queries:
  post: {find: Post, by: [post], attributes: [title, state]}
""",
)
CONSISTENT_READ = Kind(
    "consistent-read",
    ("warning", "note"),
    summary="A query requires consistent reads, which are not possible for these items.",
    why="DynamoDB has no consistent reads of global indexes. Rules write derived items, values and index keys after the "
    "application's write, so a consistent read of them can return older values: the severity is then note.",
    fix="Leave out `consistent`, or read the item by its own key.",
    example="""\
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK]}}
entities:
  User: {key: {PK: "USER#{user}", SK: PROFILE}, index_key: {GSI1PK: "MAIL#{mail}"}, required: [mail]}
queries:
  byMail: {find: User, by: [mail], consistent: true}
""",
)
FILTERED_QUERY = Kind(
    "filtered-query",
    ("warning",),
    summary="A query reads items that a filter then discards.",
    why="DynamoDB charges for all items that a request reads, and a page of 1 MB may have no item of the answer.",
    fix="Add the index that the message proposes. If few items are discarded, accept the finding, and record their number "
    "with `expect: {items, scanned}`.",
    example="""\
table: {key: [PK, SK]}
entities:
  Post: {key: {PK: "USER#{user}", SK: "POST#{post}"}, id: post}
queries:
  drafts: {find: Post, by: [user], where: {state: [draft]}, expect: {items: 5, scanned: 200}}
""",
)
SHARED_RANGE = Kind(
    "shared-range",
    ("warning",),
    summary="A query reads a key range that also holds items of other entities.",
    why="The items of the other entities are read and discarded. If there are many, such as the likes of a post, the query "
    "reads and pays for all of them.",
    fix="Give each entity its own partitions, with its own prefix, or sort keys with different prefixes.",
    example="""\
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK]}}
entities:
  Post:
    {key: {PK: "USER#{user}", SK: "POST#{post}"}, index_key: {GSI1PK: "POST#{post}", GSI1SK: "{at}"}, required: [at]}
  Like:
    {key: {PK: "USER#{user}", SK: "LIKE#{post}"}, index_key: {GSI1PK: "POST#{post}", GSI1SK: "LIKE#{user}"}}
queries:
  post: {find: Post, by: [post]}
  likers: {find: Like, by: [post]}
""",
)
SEVERAL_REQUESTS = Kind(
    "several-requests",
    ("note",),
    summary="A query takes several requests.",
    why="Each page takes all these requests. Each request costs at least half a read unit, or one if it is consistent. "
    "They can run in parallel.",
    fix="If this is intended, change nothing: buckets and time periods in partition keys spread writes. "
    "Otherwise, put all items in one partition.",
    example="""\
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK]}}
entities:
  Post: {key: {PK: "USER#{user}", SK: "POST#{post}"}, id: post, required: [createdAt]}
projections:
  newest: {from: Post, index: {GSI1PK: "POST#{post|bucket(4)}", GSI1SK: "{createdAt}"}}
queries:
  newest: {find: Post, order: createdAt desc, limit: 20}
""",
)
UNUSED_INDEX = Kind(
    "unused-index",
    ("note",),
    summary="No query reads an index, or the items that a rule puts into it.",
    why="An index costs storage, and write units with each change of its items. An index rule also costs a write for each "
    "item.",
    fix="Remove the index or the rule, or add the query that needs it to `queries`.",
    example="""\
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK]}}
entities:
  Post: {key: {PK: "USER#{user}", SK: "POST#{post}"}, id: post}
projections:
  byTitle: {from: Post, index: {GSI1PK: "POST#{post}", GSI1SK: "{title|truncate(80)}"}}
queries:
  posts: {find: Post, by: [user]}
""",
)
LARGE_COPY = Kind(
    "large-copy",
    ("note",),
    summary="A rule copies all attributes of large items.",
    why="Each change of an item writes the whole copy: one write unit for each KB begun. A list page seldom needs the whole "
    "item.",
    fix="Copy the attributes that queries of the copy need. Keep large objects outside the item, in S3.",
    example="""\
table: {key: [PK, SK]}
entities:
  Post: {key: {PK: "USER#{user}", SK: "POST#{post}"}, id: post}
  Meta: {key: {PK: "POST#{post}", SK: META}}
projections:
  meta: {from: Post, copy: {into: Meta, attributes: all}}
queries:
  posts: {find: Post, by: [user], expect: {bytes: 20000}}
""",
)
STATIC_INDEX_KEY = Kind(
    "static-index-key",
    ("note",),
    summary="A rule writes an index key that the application could write itself.",
    why="The key consists of constants and variables of the item's own key, so it never changes. The rule costs one more "
    "write for each new item; an attribute in the application's own put costs none. Only files with queries are checked.",
    fix="Let the application write the attributes, declare them with `index_key`, and remove the rule.",
    example="""\
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK]}}
entities:
  Post: {key: {PK: "USER#{user}", SK: "POST#{post}"}, id: post}
projections:
  byPost: {from: Post, index: {GSI1PK: "POST#{post}", GSI1SK: "USER#{user}"}}
queries:
  post: {find: Post, by: [post]}
""",
)
FEW_PARTITIONS = Kind(
    "few-partitions",
    ("note",),
    summary="A partition key has an attribute that probably has few values.",
    why="There are few countries, states or kinds, and items are not spread evenly over them. `check` infers this from the "
    "name of the attribute, in files with queries. A partition accepts 1,000 write units and 3,000 read units a second.",
    fix="Add another attribute from `by` of the queries to the key, or a bucket. If there are few writes, accept the "
    "finding.",
    example="""\
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK]}}
entities:
  Shop: {key: {PK: "SHOP#{shop}", SK: SHOP}, id: shop, required: [country, city]}
projections:
  located: {from: Shop, index: {GSI1PK: "COUNTRY#{country}", GSI1SK: "{city}"}}
queries:
  inCity: {find: Shop, by: [country, city]}
""",
)

# The rule file itself

MISTAKE = Kind(
    "mistake",
    ("error",),
    summary="The rule file is invalid.",
    why="Rules with a mistake cannot be loaded, so nothing can be deployed with them. Findings appear when "
    "all mistakes are corrected.",
    fix="The message names the place and the correct form. [rules.md](rules.md) describes the format.",
    example="""\
projections:
  byUser: {from: Posts, aggregate: {into: User, set: {posts: count}}}
""",
)
UNUSED_IGNORE = Kind(
    "unused-ignore",
    ("note",),
    summary="A comment `# check: ignore …` accepts nothing.",
    why="There is no such finding at this place, or the code is misspelt. The comment would hide a finding that appears "
    "later.",
    fix="Remove the comment, or correct the code.",
    example="""\
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK]}}
entities:
  Post: {key: {PK: "USER#{user}", SK: "POST#{post}"}}
projections:
  byDay:
    from: Post
    index: {GSI1PK: "POST#{post}", GSI1SK: "{user}"} # check: ignore hot-partition
""",
)

KINDS: Mapping[str, Kind] = {kind.code: kind for kind in list(vars().values()) if isinstance(kind, Kind)}
"""All of the above, by code."""

CODES = tuple(code for code in KINDS if code not in (MISTAKE.code, UNUSED_IGNORE.code))
"""The kinds that `# check: ignore` can name."""
