"""A world in which records may be lost, for tests of what refreshes it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from projections.engine.embeds import Push
from projections.engine.refresh import Refresher
from projections.engine.running import Deadline
from projections.engine.store import Image, ItemKey
from projections.testing.oracle import Oracle
from projections.testing.oracle.oracle import Difference
from tests.engine.world import World, wires

HEAD = """
table:
  key: [PK, SK]
  indexes: {GSI1: [GSI1PK, GSI1SK], GSI2: [GSI2PK, GSI2SK]}
  ttl: expiresAt
entities:
  User: {key: {PK: "USER#{userId}", SK: PROFILE}}
  Email: {key: {PK: "EMAIL#{email}", SK: OWNER}, match: {type: Email}}
  Post: {key: {PK: "USER#{userId}", SK: "POST#{postId}"}, id: postId}
  PostMeta: {key: {PK: "POST#{postId}", SK: METADATA}, match: {type: PostMeta}}
  Like: {key: {PK: "USER#{userId}", SK: "LIKE#{postId}"}}
  Comment: {key: {PK: "POST#{postId}", SK: "COMMENT#{commentId}"}, index_key: {GSI2PK: "AUTHOR#{userId}"}}
  Tag: {key: {PK: "TAG#{tag}", SK: STATS}, derived: true}
projections:
"""
RULES = """
  owner: {from: User, copy: {into: Email, attributes: [userId, name]}}
  postById: {from: Post, copy: {into: PostMeta, attributes: [title, status, tags]}}
  likes: {from: Like, aggregate: {into: PostMeta, set: {likeCount: count}}}
  discussion: {from: Comment, aggregate: {into: PostMeta, set: {comments: count, lastAt: max(number(at))}}}
  newest: {from: Comment, top: {into: PostMeta, as: recent, by: at, limit: 2, attributes: [text]}}
  tags: {from: PostMeta, each: {tag: tags}, aggregate: {into: Tag, set: {posts: count}}}
  listed:
    from: PostMeta
    where: {status: [published]}
    index: {GSI1PK: PUBLISHED, GSI1SK: "{likeCount|pad(6)}#{postId}"}
  author:
    from: User
    embed: {into: Comment, match: {userId: "{userId}"}, attributes: {userName: name}, on_delete: remove}
"""
COUNT = "  likes: {from: Like, aggregate: {into: Post, set: {likeCount: count}}}\n"
_WRITES = ("write", "transact", "write_each")


class Stopped(BaseException):
    """The process dies."""


class Scene(World):
    """A world in which records may be lost: nobody ever processes them."""

    def __init__(self, rules: str = RULES, head: str = HEAD, **settings: Any) -> None:
        super().__init__(rules, head if rules != COUNT else "", **settings)
        self.oracle = Oracle(self.program.document)

    def lose(self) -> None:
        self.position = len(self.store.stream("main"))

    def refresher(self, **settings: Any) -> Refresher:
        snapshot, program = self.registry().current()
        return Refresher(program, self.store, snapshot, clock=lambda: 1e9, **settings)

    def scanned(self) -> dict[ItemKey, Image]:
        schema = self.store.schema("main")
        return {schema.key("main", image): image for image in self.store.items("main")}

    def refresh(self, key: ItemKey, *known: Image, refresher: Refresher | None = None) -> Refresher:
        """One item in every role, and the pushes that this leaves to be made."""
        refresher = refresher or self.refresher()
        pushes = refresher.keys([key], deadline(), {key: known} if known else None)
        for push in pushes:
            refresher.embedder.raise_fence(push)
        work_off(refresher, pushes)
        return refresher

    def backfill(self) -> Refresher:
        """What a backfill does with a table that fits into one page."""
        (snapshot, program), images = self.registry().current(), self.scanned()
        refresher = Refresher(program, self.store, snapshot, clock=lambda: 1e9)
        refresher.refresh_scanned(images, deadline())
        groups = {(rule, target) for item in self.ledger("G|") for _, rule, target in [item["pk"].split("|", 2)]}
        refresher.publish(groups, deadline())
        items = {key: item for key, image in images.items() if (item := program.recognise(key, image))}
        refresher.targets(images, deadline(), items)
        return refresher

    def differences(self) -> list[Difference]:
        guards = self.guards()
        return self.oracle.compare(
            {"main": self.store.items("main")},
            genuine=lambda key, name, held: (
                held == guards.mark_of(key) or guards.parse(guards.rule(name), key, held) is not None
            ),
        )

    def entry(self, source: str) -> dict[str, Any] | None:
        found = [entry for entry in self.ledger("E|") if entry["pk"] == f"E|main|{source}"]
        return found[0] if found else None

    def contributed(self, source: str) -> Any:
        entry = self.entry(source)
        return None if entry is None else json.loads(entry["contributions"])


def deadline(seconds: float = 900.0) -> Deadline:
    return Deadline(lambda: seconds, sleep=lambda seconds: None)


def work_off(refresher: Refresher, pushes: Sequence[Push]) -> None:
    waiting = list(pushes)
    while waiting:
        push = waiting.pop()
        more, hopeless = refresher.embedder.push_page(push, deadline())
        assert not hopeless
        following = refresher.embedder.following(push, more)
        waiting += [following[0]] if following else []


def before(
    world: World,
    method: str,
    work: Callable[[], Any],
    call: int = 0,
    *,
    when: Callable[[Any], bool] = lambda what: True,
) -> None:
    """Somebody does something just before a call of the store, and nothing at the calls this makes itself.

    Only calls count whose first argument `when` accepts.

    Until then the method is among the store's `vars`.
    """
    original, calls = getattr(world.store, method), iter(range(1_000_000))

    def called(*arguments: Any, **options: Any) -> Any:
        if when(arguments[0]) and next(calls) == call:
            delattr(world.store, method)
            work()
        return original(*arguments, **options)

    setattr(world.store, method, called)


def populate(w: World) -> None:
    for user in "abc":
        w.put(f"USER#{user}", "PROFILE", name=user.upper(), email=f"{user}@example.com")
    for post in "123":
        w.put("USER#a", f"POST#{post}", title=post, status="published", tags=["red", post])
        for user in "abc":
            w.put(f"USER#{user}", f"LIKE#{post}")
    for comment in range(3):
        w.put(
            "POST#1", f"COMMENT#{comment}", userId="a", GSI2PK="AUTHOR#a", GSI2SK=str(comment), text=str(comment), at=comment
        )  # fmt: skip


def settled(**settings: Any) -> Scene:
    w = Scene(**settings)
    populate(w)
    w.settle()
    assert w.differences() == []
    return w


def without(image: Image, *names: str) -> Image:
    return {name: value for name, value in image.items() if name not in names}


def changed(image: Image, **attributes: Any) -> Image:
    return {**image, **wires(attributes)}


def dies(w: World, writes: int, work: Callable[[], Any]) -> bool:
    """Work in a process that dies after this number of writes; another one goes on. Return whether it died."""
    left = iter(range(writes))

    def mortal(original: Callable[..., Any], *arguments: Any) -> Any:
        if next(left, None) is None:
            raise Stopped
        return original(*arguments)

    for name in _WRITES:
        setattr(w.store, name, partial(mortal, getattr(w.store, name)))
    try:
        work()
    except Stopped:
        return True
    else:
        return False
    finally:
        for name in _WRITES:
            vars(w.store).pop(name, None)
