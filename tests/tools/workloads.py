"""Workloads whose cost is known twice: by the rules, and by the engine for the items here. Each is one batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from projections.engine.store import Image
from projections.inspect.cost.change_costs import Flow
from projections.language.loader import load, loads
from projections.language.program import Program
from projections.language.values import wire

__all__ = ["WORKLOADS", "Workload", "item", "posts"]

ROOT = Path(__file__).parents[2]

HEAD = """
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK], GSI2: [GSI2PK, GSI2SK]}}
entities:
  Post: {key: {PK: "POST#{postId}", SK: METADATA}}
  Like: {key: {PK: "USER#{userId}", SK: "LIKE#POST#{postId}"}}
  User: {key: {PK: "USER#{userId}", SK: PROFILE}}
  Card: {key: {PK: "CARD#{postId}", SK: CARD}}
  ByName: {key: {PK: "NAME#{name}", SK: USER}}
  Comment: {key: {PK: "POST#{postId}", SK: "COMMENT#{commentId}"}, index_key: {GSI1PK: "AUTHOR#{userId}"}}
"""
TAG = '  Tag: {key: {PK: "TAG#{tag}", SK: STATS}, derived: true}\n'


@dataclass(frozen=True)
class Workload:
    """`before` is written and projected first, unmetered; then `puts` are one batch."""

    name: str
    rules: str
    flow: Flow
    number: int
    puts: Callable[[], Sequence[Image]]
    before: Callable[[], Sequence[Image]] = list
    targets: float | None = None
    children: float = 0.0

    @property
    def program(self) -> Program:
        if self.rules == "social":
            return Program.from_document(load(ROOT / "projections/rules/social.yaml").document())
        head = HEAD + (TAG if "into: Tag" in self.rules else "") + "projections:\n"
        return Program.from_document(loads(head + self.rules).document())


def item(pk: str, sk: str, **attributes: Any) -> Image:
    return {"PK": {"S": pk}, "SK": {"S": sk}, **{name: wire(value) for name, value in attributes.items()}}


def post(number: int, **attributes: Any) -> Image:
    return item(f"POST#{number}", "METADATA", title=f"Post {number}", **attributes)


def posts(count: int, **attributes: Any) -> Callable[[], Sequence[Image]]:
    return lambda: [post(number, **attributes) for number in range(count)]


def likes(count: int, of: int, **attributes: Any) -> Callable[[], Sequence[Image]]:
    return lambda: [item(f"USER#{n}", f"LIKE#POST#{n % of}", **attributes) for n in range(count)]


def both(*parts: Callable[[], Sequence[Image]]) -> Callable[[], Sequence[Image]]:
    return lambda: [image for part in parts for image in part()]


LIKE, POST = Flow("Like"), Flow("Post")


def edit(entity: str, attribute: str) -> Flow:
    return Flow(entity, frozenset({attribute}))


LANES = "  engagement: {from: Like, aggregate: {into: Post, ledger: lanes, set: {likeCount: count}}}\n"
COUNT = "  engagement: {from: Like, aggregate: {into: Post, set: {likeCount: count}}}\n"
TOP = "  newest: {from: Like, top: {into: Post, as: newest, by: at, limit: 3, attributes: [at, userId]}}\n"
EXTREMES = "{first: min(number(at)), last: max(number(at)), best: max(number(stars))}"
SPAN = f"  span: {{from: Like, aggregate: {{into: Post, set: {EXTREMES}}}}}\n"
TAGS = "  tagged: {from: Post, each: {tag: tags}, aggregate: {into: Tag, set: {posts: count}}}\n"
CARD = "  card: {from: Post, copy: {into: Card, attributes: [title, status]}}\n"
CLAIM = "  byName: {from: User, copy: {into: ByName, attributes: [userId, email]}}\n"
LISTED = '  listed: {from: Post, index: {GSI1PK: "{status}", GSI1SK: "{at}"}}\n'
RANKED = '  ranked: {from: Post, index: {GSI2PK: "{status}", GSI2SK: "{likeCount|pad(8)}"}}\n'
EMBED = "  {}: {{from: {}, embed: {{into: Comment, match: {}, attributes: {}, on_delete: {}}}}}\n"
AUTHOR = EMBED.format("author", "User", '{userId: "{userId}"}', "{by: name}", "remove")
ROOM = EMBED.format("room", "Post", '{postId: "{postId}"}', "{about: title}", "keep")
NUMBERS = "share: 'round(likeCount / views, 4)', rest: total / (views - likeCount)"
COMPUTED = (
    f"  computed: {{from: Post, compute: {{set: {{label: '{{title}} {{status}}', double: views * 2, {NUMBERS}}}}}}}\n"
)
CASES = """  state:
    from: Post
    compute:
      set:
        percent: likeCount / views * 100
        state:
        - {constant: done, where: {percent: {">=": 100}}}
        - {value: "{percent|truncate(3)} percent", where: {percent: [{exists: true}]}}
        - coalesce(status, 'new')
  listed: {from: Post, index: {GSI1PK: "{postId}", GSI1SK: "{state}"}}
"""
WEIGHTS = """  weights: {from: Like, compute: {set: {weight: stars * 2}}}
  weight: {from: Like, aggregate: {into: Post, set: {weight: sum(weight), each: sum(weight / 7)}}}
"""
ONCE = "  author: {from: Like, compute: {once: true, set: {author: by}}}\n"
BY_VALUE = "{stars: counts(text(stars)), most: distinct(text(stars))}"
HISTOGRAM = f"  histogram: {{from: Like, aggregate: {{into: Post, set: {BY_VALUE}}}}}\n"
RANKS = "  ranks: {from: Like, rank: {into: Post, by: score, digits: 8}}\n"
TEAM = "  team: {from: User, embed: {into: Post, match: {editors: '{userId}'}, as: team, attributes: [name]}}\n"


def comment(number: int, **attributes: Any) -> Image:
    attributes = {"userId": "0", "GSI1PK": "AUTHOR#0", "GSI1SK": str(number), **attributes}
    return item("POST#0", f"COMMENT#{number:06}", **attributes)


def comments(count: int, **attributes: Any) -> Callable[[], Sequence[Image]]:
    return lambda: [comment(number, **attributes) for number in range(count)]


def user(number: int, **attributes: Any) -> Image:
    return item(f"USER#{number}", "PROFILE", **attributes)


def ranked(score: int) -> Callable[[], Sequence[Image]]:
    return lambda: [item("USER#0", "LIKE#POST#0", score=score)]


def edited(number: int) -> Image:
    """A post with three editors."""
    return post(number, editors=[f"{number}-{k}" for k in range(3)])


def editors() -> Sequence[Image]:
    return [item(f"USER#{number}-{k}", "PROFILE", name="Ada") for number in range(4) for k in range(4)]


def social_post(status: str = "published", **attributes: Any) -> Image:
    given = {"userId": "ada", "postId": "p1", "createdAt": "2026-03-01T00:00:00Z", "title": "T", "status": status}
    return item("USER#ada", "POST#2026-03-01T00:00:00Z#p1", **given, publishedAt="2026-03-02T00:00:00Z", **attributes)


WORKLOADS = [
    Workload("a lone like", COUNT, LIKE, 1, likes(1, 1), before=posts(1)),
    Workload(
        "a lone like held", (COUNT + TOP).replace("from: Like", "from: Like, hold: true"),
        LIKE, 1, likes(1, 1, at=1), before=posts(1),
    ),
    Workload(
        "a post held", (CARD + LISTED).replace("from: Post", "from: Post, hold: true"),
        POST, 1, posts(1, status="draft", at="1"),
    ),
    Workload("1000 likes of one post", COUNT, LIKE, 1000, likes(1000, 1), before=posts(1), targets=1),
    Workload("1000 likes of 10 posts", COUNT, LIKE, 1000, likes(1000, 10), before=posts(10), targets=10),
    Workload("300 likes of 300 posts", COUNT, LIKE, 300, likes(300, 300), before=posts(300)),
    Workload("a lone like by lanes", LANES, LIKE, 1, likes(1, 1), before=posts(1)),
    Workload("1000 likes of 10 posts by lanes", LANES, LIKE, 1000, likes(1000, 10), before=posts(10), targets=10),
    Workload("a post that lanes count likes of", LANES, POST, 1, posts(1)),
    Workload("a like with a least and a greatest", SPAN, LIKE, 1, likes(1, 1, at=1, stars=2), before=posts(1)),
    Workload("20 likes in a list", TOP, LIKE, 20, likes(20, 2, at=7), before=posts(2), targets=2),
    Workload(
        "20 likes whose order changes", TOP, edit("Like", "at"), 20, likes(20, 2, at=7),
        before=both(posts(2), likes(20, 2, at=1)), targets=2,
    ),
    Workload(
        "30 posts with 3 of 5 tags", TAGS, POST, 30,
        lambda: [post(n, tags=[f"t{(3 * n + k) % 5}" for k in range(3)]) for n in range(30)],
        before=lambda: [post(1000, tags=[f"t{k}" for k in range(5)])], targets=5,
    ),
    Workload("5 copies", CARD, POST, 5, posts(5, status="draft")),
    Workload(
        "5 copies that change", CARD, edit("Post", "status"), 5, posts(5, status="live"), before=posts(5, status="draft"),
    ),
    Workload(
        "5 edits that are not copied", CARD, edit("Post", "note"), 5,
        posts(5, status="draft", note="x"), before=posts(5, status="draft"),
    ),
    Workload("3 claims", CLAIM, Flow("User"), 3, lambda: [user(n, name=f"n{n}", email="e") for n in range(3)]),
    Workload("7 posts into an index", LISTED, POST, 7, posts(7, status="draft", at="1")),
    Workload(
        "7 posts that change their index key", LISTED, edit("Post", "status"), 7,
        posts(7, status="live", at="1"), before=posts(7, status="draft", at="1"),
    ),
    Workload(
        "40 likes of 4 posts that are ranked by them", COUNT + LISTED + RANKED, LIKE, 40, likes(40, 4),
        before=posts(4, status="live", at="1"), targets=4,
    ),
    Workload("a child appears", AUTHOR, Flow("Comment"), 1, comments(1), before=lambda: [user(0, name="Ada")]),
    Workload(
        "7 edits that concern one of two rules", COUNT + TOP, edit("Like", "at"), 7,
        likes(7, 2, at="2"), before=both(posts(2), likes(7, 2, at="1")), targets=2,
    ),
    Workload(
        "a parent of 60 children is renamed", AUTHOR, edit("User", "name"), 1,
        lambda: [user(0, name="Bea")], before=both(lambda: [user(0, name="Ada")], comments(60)), children=60,
    ),
    Workload(
        "a parent of 1000 children in its own collection is renamed", ROOM, edit("Post", "title"), 1,
        lambda: [item("POST#0", "METADATA", title="New")], before=both(posts(1), comments(1000)), children=1000,
    ),
    Workload("a parent appears", AUTHOR, Flow("User"), 1, lambda: [user(0, name="Ada")]),
    Workload("5 posts with computed attributes", COMPUTED, POST, 5, posts(5, status="live", views=5, total=9, likeCount=2)),
    Workload(
        "10 likes from which shares are computed", COUNT + COMPUTED, LIKE, 10, likes(10, 2),
        before=posts(2, status="live", views=50, total=10), targets=2,
    ),
    Workload(
        "3 posts whose state follows from views", COUNT + CASES, edit("Post", "views"), 3,
        posts(3, views=900), before=both(posts(3, status="live", views=50), likes(6, 3)),
    ),
    Workload(
        "10 likes with a computed weight", WEIGHTS.replace("/ 7", "/ 4"), LIKE, 10, likes(10, 2, stars=4),
        before=posts(2), targets=2,
    ),
    Workload("5 likes with an author set once", ONCE, LIKE, 5, likes(5, 5, by="ada")),
    Workload(
        "5 likes with an author set once, edited", ONCE, edit("Like", "by"), 5,
        likes(5, 5, by="ben"), before=likes(5, 5, by="ada"),
    ),
    Workload(
        "12 likes with stars of their own", HISTOGRAM, LIKE, 12,
        lambda: [item(f"USER#{n}", f"LIKE#POST#{n % 2}", stars=str(n)) for n in range(12)], before=posts(2), targets=2,
    ),
    Workload("a like that is ranked", RANKS, LIKE, 1, ranked(12345678)),
    Workload("a like whose rank changes", RANKS, edit("Like", "score"), 1, ranked(87654321), before=ranked(12345678)),
    Workload("4 posts with 3 editors each", TEAM, POST, 4, lambda: [edited(n) for n in range(4)], before=editors),
    Workload(
        "an editor of 4 posts is renamed", TEAM, edit("User", "name"), 1,
        lambda: [item("USER#ada", "PROFILE", name="Bea")],
        before=both(
            editors, lambda: [item("USER#ada", "PROFILE", name="Ada")],
            lambda: [post(n, editors=["ada", f"{n}-0", f"{n}-1"]) for n in range(4)],
        ),
        children=4,
    ),
    Workload(
        "12 social likes of one post", "social", LIKE, 12,
        lambda: [item(f"USER#{n}", "LIKE#POST#p1", likedAt="2026-03-02T01:00:00Z") for n in range(12)],
        before=lambda: [item("USER#ada", "PROFILE", name="Ada"), social_post()], targets=1,
    ),
    Workload(
        "a social post with a new title", "social", edit("Post", "title"), 1,
        lambda: [social_post() | {"title": {"S": "New"}}],
        before=lambda: [item("USER#ada", "PROFILE", name="Ada"), social_post()],
    ),
]  # fmt: skip
