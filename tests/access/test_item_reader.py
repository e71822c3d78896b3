"""`projections.reader`: without guards, with own writes, and how waits end; in memory and on DynamoDB Local with boto3."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import boto3
import pytest

import projections
from projections.access.item_reader import ItemReader, session_of
from projections.aws.clients import client
from projections.aws.live_tables import create_table, delete_table
from projections.engine.ledger_items import group_key
from projections.engine.registry import REGISTRY, Registry
from projections.engine.store import ItemKey, Update
from projections.language.program import LEDGER_SCHEMA
from projections.language.values import wire
from projections.stores.dynamodb import DynamoDBStore
from projections.testing import Scenario
from tests.engine.world import World, wires

RULES = """
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK]}, ttl: expiresAt}
entities:
  User: {key: {PK: "USER#{userId}", SK: PROFILE}}
  Post: {key: {PK: "POST#{postId}", SK: META}}
  Card: {key: {PK: "POST#{postId}", SK: CARD}}
  Like: {key: {PK: "POST#{postId}", SK: "LIKE#{userId}"}, index_key: {GSI1PK: "USER#{userId}"}}
  Visit: {key: {PK: "POST#{postId}", SK: "VISIT#{visitId}"}, expires: true}
  Tag: {key: {PK: "TAG#{tag}", SK: STATS}, derived: true}
projections:
  likes: {from: Like, aggregate: {into: Post, set: {likeCount: count, stars: avg(stars), best: max(number(stars))}}}
  shown: {from: Like, where: {hidden: [false, {exists: false}]}, aggregate: {into: Post, set: {shownLikes: count}}}
  visits: {from: Visit, expired: keep, aggregate: {into: Post, set: {visits: count}}}
  card: {from: Post, copy: {into: Card, attributes: [title]}}
  double: {from: Post, compute: {set: {doubled: "price * 2"}}}
  tags: {from: Post, each: {tag: tags}, aggregate: {into: Tag, set: {posts: count}}}
  author: {from: User, embed: {into: Like, match: {userId: "{userId}"}, attributes: {userName: name}}}
"""
POST = {"PK": "POST#p1", "SK": "META"}
BOB = {"PK": "POST#p1", "SK": "LIKE#bob"}


class ReadScene:
    """A world with a reader of its store. `seconds` is what the waits have taken."""

    def __init__(self, rules: str = RULES, **settings: Any) -> None:
        head, _, body = rules.partition("projections:\n")
        self.world = World(body, head + "projections:\n", **settings)
        self.seconds = 0.0
        self.on_sleep: list[Callable[[], object]] = []
        self.session = session_of(self.world.program, self.world.store, None, None)
        self.reader = ItemReader(self.world.program, self.session, clock=lambda: self.seconds, sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.seconds += seconds
        if self.on_sleep:
            self.on_sleep.pop(0)()

    def put(self, key: dict[str, str], **attributes: Any) -> None:
        self.world.put(key["PK"], key["SK"], **attributes)

    def change(self, key: dict[str, str], **attributes: Any) -> None:
        """Set attributes of an item; None removes one."""
        store = self.world.store
        image = {**(store.get(ItemKey("main", key["PK"], key["SK"])) or {}), **wires(attributes)}
        store.put("main", {name: value for name, value in image.items() if value != {"NULL": True}})


@pytest.fixture
def scene() -> ReadScene:
    scene = ReadScene()
    scene.put(POST, title="Notes", price=5)
    scene.put({"PK": "POST#p1", "SK": "LIKE#ann"}, stars=2)
    scene.world.settle()
    return scene


def test_a_read_returns_the_item_without_guards(scene: ReadScene) -> None:
    assert scene.reader.read(POST) == {
        **POST, "title": "Notes", "price": 5, "doubled": 10, "likeCount": 1, "stars": 2, "best": 2,
        "shownLikes": 1, "visits": 0,
    }  # fmt: skip
    assert scene.reader.read({**POST, "SK": "NONE"}) is None
    assert scene.reader.without_guards({"a": 1, "~likes": {}, "~": "x"}) == {"a": 1}


def test_own_writes_are_in_counts_sums_and_averages_and_other_attributes_are_named(scene: ReadScene) -> None:
    scene.put(BOB, stars=4, hidden=True)
    item = scene.reader.read(POST, own=[{**BOB, "stars": 4}])
    assert item is not None
    assert (item["likeCount"], item["stars"], item["shownLikes"], item["best"]) == (2, 3, 1, 2)
    assert item.corrected == ("likeCount", "shownLikes", "stars")
    assert item.uncorrected == {"best": "max depends on the values of other items"}
    scene.world.settle()
    again = scene.reader.read(POST, own=[BOB])
    assert again is not None
    assert (again["likeCount"], again["stars"], again["shownLikes"], again["best"]) == (2, 3, 1, 4)


def test_an_own_item_contributes_what_rules_compute_on_it_before_they_have_set_it() -> None:
    scene = ReadScene("""
table: {key: [PK, SK]}
entities:
  Post: {key: {PK: "POST#{postId}", SK: META}}
  Like: {key: {PK: "POST#{postId}", SK: "LIKE#{userId}"}}
projections:
  worth: {from: Like, aggregate: {into: Post, set: {worth: sum(fourfold)}}}
  fourfold: {from: Like, compute: {set: {fourfold: "twofold * 2"}}}
  twofold: {from: Like, compute: {set: {twofold: "stars * 2"}}}
""")
    scene.put(POST)
    scene.put(BOB, stars=1)
    scene.world.settle()
    for stars in (3, 5):
        scene.put(BOB, stars=stars, twofold=2, fourfold=4)
        item = scene.reader.read(POST, own=[BOB])
        assert item is not None
        assert (item["worth"], item.corrected) == (4 * stars, ("worth",))
        scene.world.settle()
        settled = scene.reader.read(POST)
        assert settled is not None
        assert settled["worth"] == 4 * stars


def test_an_own_item_that_expires_with_keep_corrects_nothing(scene: ReadScene) -> None:
    visit = {"PK": "POST#p1", "SK": "VISIT#1"}
    scene.put(visit)
    item = scene.reader.read(POST, own=[visit])
    assert item is not None
    assert item["visits"] == 0
    assert item.corrected == ()
    assert "keeps what has expired" in item.uncorrected["visits"]


def test_what_lanes_count_is_unknown() -> None:
    scene = ReadScene(RULES.replace("{into: Post, set: {shownLikes", "{into: Post, ledger: lanes, set: {shownLikes"))
    scene.world.shard = "shard-1"
    scene.put(POST)
    scene.put(BOB, stars=1)
    scene.world.settle()
    item = scene.reader.read(POST, own=[BOB])
    assert item is not None
    assert (item["likeCount"], item["shownLikes"]) == (1, 1)
    reason = "shown has no entries (ledger: lanes) that show which of the own items it has counted"
    assert item.uncorrected["shownLikes"] == reason
    answer = scene.reader.wait(BOB)
    reason = "shown has no entry (ledger: lanes) that shows whether it has counted the item"
    assert (answer.state, answer.reasons) == ("unknown", (reason,))


def test_a_rule_that_fills_corrects_nothing_and_a_wait_says_so() -> None:
    scene = ReadScene(filled=False)
    scene.put(POST, title="Notes", price=5, likeCount=7)
    scene.put(BOB)
    item = scene.reader.read(POST, own=[BOB])
    assert item is not None
    assert (item["likeCount"], item.corrected) == (7, ())
    assert item.uncorrected["likeCount"] == "likes is not published"
    ended = scene.reader.wait(BOB)
    assert (ended.state, ended.seconds) == ("filling", 0)
    assert ended.reasons == tuple(f"{name} is filling: its fill is not complete" for name in ("likes", "shown"))


def test_a_wait_after_the_first_write_to_a_new_ledger_lasts_until_the_functions_have_made_the_registry() -> None:
    scene = ReadScene()
    scene.world.store.remove(REGISTRY)
    scene.put(POST)
    scene.put(BOB)
    ended = scene.reader.wait(BOB, timeout=2)
    assert (ended.state, ended.seconds) == ("late", 2)
    assert ended.reasons == ("no rules are active yet: the functions create the registry with their first batch",)
    scene.on_sleep = [scene.world.settle]
    assert scene.reader.wait(BOB).reached


CHANGED = RULES.partition("projections:\n")[2].replace("hidden: [false,", "hidden: [false, maybe,")


def changed(scene: ReadScene, body: str = CHANGED) -> tuple[World, ItemReader]:
    """The functions with a changed rule, before its backfill, and a reader of the same rules."""
    world = scene.world.under(body, RULES.partition("projections:\n")[0] + "projections:\n")
    return world, ItemReader(world.program, scene.session)


def test_a_wait_for_a_changed_rule_is_unknown_until_it_is_applied_and_filling_until_it_is_published(
    scene: ReadScene,
) -> None:
    world, reader = changed(scene)
    scene.put(BOB)
    world.settle()
    unknown = ("unknown", ("shown is not active in this form: another version of the rules is active",))
    ended = reader.wait(BOB)
    assert (ended.state, ended.reasons) == unknown
    world.registry().register(world.program)
    ended = reader.wait(BOB)
    assert (ended.state, ended.reasons) == ("filling", ("shown is filling: its fill is not complete",))
    assert reader.wait(POST).reached  # none of its rules has changed
    world.registry().fill(["shown.2"])
    ended = reader.wait(BOB)
    assert (ended.state, ended.reasons) == unknown, "it is complete, and the other version is published"
    world.registry().promote(["shown.2"])
    scene.put(BOB, hidden=True)
    world.settle()
    assert reader.wait(BOB).reached


def test_a_wait_lasts_until_a_promotion_has_reached_what_the_former_version_has_set(scene: ReadScene) -> None:
    scene.put(BOB)
    scene.world.settle()
    world, reader = changed(scene, RULES.partition("projections:\n")[2].replace("[false, {exists: false}]", "[true]"))
    world.apply(promotes=False)
    world.registry().promote(["shown.2"])
    reasons = ("shown: main|POST#p1|META may show the former version of the rule",)
    ended = reader.wait(BOB, timeout=0)
    assert (ended.state, ended.reasons) == ("late", reasons)
    world.carry_out()
    assert reader.wait(BOB).reached


def test_a_wait_for_the_deletion_of_an_item_is_filling_while_its_rule_fills(scene: ReadScene) -> None:
    scene.put(BOB)
    scene.world.settle()
    world, reader = changed(scene)
    world.registry().register(world.program)
    scene.world.remove("POST#p1", "LIKE#bob")
    world.settle()
    post = reader.read(POST)
    assert post is not None
    assert (post["likeCount"], post["shownLikes"]) == (1, 1)  # the version that is published shows it
    assert reader.wait(BOB).state == "filling"


def test_a_wait_covers_copies_of_a_changed_rule_once_it_is_applied(scene: ReadScene) -> None:
    world, reader = changed(scene, RULES.partition("projections:\n")[2].replace("[title]", "[title, price]"))
    world.registry().register(world.program)
    scene.put(POST, title="Notes", price=6)
    world.settle()
    assert reader.wait(POST).reached
    card = reader.read({**POST, "SK": "CARD"})
    assert card is not None
    assert card["price"] == 6


def test_a_wait_ends_when_the_targets_show_the_item(scene: ReadScene) -> None:
    scene.put(BOB)
    scene.on_sleep = [lambda: None, scene.world.settle]
    ended = scene.reader.wait(BOB)
    assert ended.reached
    assert (ended.state, ended.reasons) == ("reached", ())
    assert ended.seconds == pytest.approx(0.15)
    assert scene.reader.wait({"PK": "USER#u1", "SK": "PROFILE"}).not_covered == ("author",)


def test_a_wait_covers_copies_and_attributes_of_the_item_itself(scene: ReadScene) -> None:
    scene.change(POST, title="Other", price=6)
    ended = scene.reader.wait(POST, timeout=0)
    assert ended.reasons == ("double: doubled of the item is not set yet",)
    scene.change(POST, doubled=12)
    ended = scene.reader.wait(POST, timeout=0)
    assert ended.reasons == ("card: the copy main|POST#p1|CARD is not written yet",)
    scene.world.settle()
    assert scene.reader.wait(POST).reached
    scene.world.remove("POST#p1", "META")
    assert scene.reader.wait(POST, timeout=0).reasons == ("card: the copy main|POST#p1|CARD is not removed yet",)
    scene.world.settle()
    assert scene.reader.wait(POST).reached


def test_a_wait_that_takes_too_long_says_what_is_missing(scene: ReadScene) -> None:
    scene.put(BOB)
    ended = scene.reader.wait(BOB, timeout=2)
    assert (ended.state, ended.seconds) == ("late", 2)
    assert ended.reasons[0] == "likes: the ledger does not record the item as it is"


def test_a_wait_for_an_item_that_rules_cannot_use_is_quarantined(scene: ReadScene) -> None:
    scene.put(BOB, stars="many")
    ended = scene.reader.wait(BOB)
    assert (ended.state, ended.seconds) == ("quarantined", 0)
    assert ended.reasons[0].startswith("likes: ")


def test_a_wait_is_unknown_where_the_ledger_does_not_show_it(scene: ReadScene) -> None:
    other = World(RULES.partition("projections:\n")[2].replace("count,", "count, most: max(number(stars)),"),
                  RULES.partition("projections:\n")[0] + "projections:\n")  # fmt: skip
    reader = ItemReader(other.program, scene.session)
    scene.put(BOB)
    own = reader.read(POST, own=[BOB])
    assert own is not None
    assert (own["likeCount"], own.uncorrected["likeCount"]) == (1, "likes is not published")
    assert reader.wait(BOB).reasons == ("likes is not active in this form: another version of the rules is active",)
    visit = {"PK": "POST#p1", "SK": "VISIT#1"}
    scene.put(visit)
    scene.world.settle()
    scene.world.remove("POST#p1", "VISIT#1")
    ended = scene.reader.wait(visit)
    assert ended.state == "unknown"
    assert "does not show whether it expired" in ended.reasons[0]


def test_a_damaged_group_corrects_nothing(scene: ReadScene) -> None:
    scene.put(BOB)
    scene.world.store.write(Update(group_key("likes.1", "main|POST#p1|META", 0), set={"n": {"S": "x"}}))
    item = scene.reader.read(POST, own=[BOB])
    assert item is not None
    assert (item["likeCount"], item["shownLikes"]) == (1, 2)
    assert item.uncorrected["likeCount"] == "the group of likes is damaged"


def test_a_read_of_own_writes_reads_the_registry_alone_only_the_first_time_and_after_a_change(scene: ReadScene) -> None:
    scene.put(BOB)
    requests: list[str] = []

    class Counted:
        def __getattr__(self, name: str) -> Any:
            requests.append(name)
            return getattr(scene.world.store, name)

    reader = ItemReader(scene.world.program, scene.session._replace(reads=Counted()))

    def read() -> tuple[Any, list[str]]:
        requests.clear()
        item = reader.read(POST, own=[BOB])
        assert item is not None
        return item["shownLikes"], list(requests)

    usual = ["get_together", "get_many"]
    assert read() == (2, ["get_many", *usual])
    assert read() == (2, usual)
    world, _ = changed(scene)
    world.registry().register(world.program)
    assert read() == (2, ["get_together", *usual])
    assert read() == (2, usual)


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda r: r.read({"PK": "POST#p1"}), "the key has no SK"),
        (lambda r: r.read({"PK": "POST#p1", "SK": 1}), "the key: SK is of type S, and the value is of type N"),
        (lambda r: r.read({"PK": "p", "SK": "é" * 513}), "SK has 1026 bytes, and no item has a key of more than 1024"),
        (lambda r: r.read({"PK": "\ud800", "SK": "META"}), "PK is .*, which DynamoDB cannot store as type S"),
        (lambda r: r.read(POST, own=BOB), r"own is {'PK'.*}. Pass a list of keys: own=\[…\]"),
        (lambda r: r.read(POST, own=[BOB, {"PK": "p"}]), r"own\[1\] has no SK"),
        (lambda r: r.wait({"PK": "", "SK": "LIKE#x"}), "PK is empty, and no item has an empty key. Pass the key"),
        (lambda r: r.read({"PK": "POST#p1", "SK": object()}), "cannot store"),
        (lambda r: r.read("POST#p1"), "It is a mapping with PK, SK"),
        (lambda r: r.read(("orders", POST)), "no table 'orders'; they have main"),
        (lambda r: r.read(POST, own=[{"PK": "X", "SK": "Y"}]), r"no entity of the rules has the key main\|X\|Y"),
        (
            lambda r: r.read(POST, own=[{**POST, "SK": f"LIKE#{n}"} for n in range(100)]),
            "needs 103 items of the ledger",
        ),
        (lambda r: r.wait({"PK": "X", "SK": "Y"}), "no entity of the rules has the key"),
        (lambda r: r.read(POST, own=b"POST"), r"own is b'POST'. Pass a list of keys"),
        (lambda r: r.without_guards([POST]), "Pass a mapping of its attributes; for several items, pass each"),
    ],
)
def test_a_wrong_key_is_a_usage_error(scene: ReadScene, work: Callable[[ItemReader], Any], message: str) -> None:
    with pytest.raises(projections.UsageError, match=message):
        work(scene.reader)


def test_wrong_arguments_of_the_reader_are_usage_errors() -> None:
    rules = projections.loads(RULES)
    dynamodb = boto3.client("dynamodb", region_name="eu-west-1")
    for arguments, message in [
        ((object(),), "found object"),
        ((dynamodb,), "no name of a table. Pass tables={'main': …}"),
        ((Scenario(rules).store, "x"), "a store has its tables"),
    ]:
        with pytest.raises(projections.UsageError, match=message):
            projections.reader(rules, arguments[0], tables=arguments[1] if len(arguments) > 1 else None)  # type: ignore[misc]
    table = boto3.resource("dynamodb", region_name="eu-west-1").Table("posts")
    for given, message in [
        ({"ledger": "posts"}, "ledger='posts': this is a table of the application. The ledger is a separate table"),
        ({"ledger": ""}, "the name of the table ledger is ''. Pass its name in DynamoDB"),
        ({"ledger": table}, "the name of the table ledger is dynamodb.Table"),
    ]:
        with pytest.raises(projections.UsageError, match=message):
            projections.reader(rules, table, **given)  # type: ignore[arg-type]
    for tables, message in [
        (["posts"], r"tables is \['posts'\]; the rules have main. Pass a mapping with the name of each"),
        (table, r"tables is dynamodb.Table\(name='posts'\); the rules have main"),
        ({"main": None}, "the name of the table main is None. Pass its name in DynamoDB"),
    ]:
        with pytest.raises(projections.UsageError, match=message):
            projections.reader(rules, dynamodb, tables=tables)  # type: ignore[arg-type]
    with pytest.raises(projections.UsageError, match=r"expected a boto3 table, .* of DynamoDB, or a store, found s3"):
        projections.reader(rules, boto3.resource("s3", region_name="eu-west-1"), tables="posts")
    reader = projections.reader(rules, dynamodb, tables="x")
    with pytest.raises(projections.UsageError, match="`own` reads the ledger"):
        reader.read({name: {"S": text} for name, text in POST.items()}, own=[wired(BOB)])
    with pytest.raises(projections.UsageError, match="`wait` reads the ledger"):
        reader.wait(wired(BOB))


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("rules.yaml", r"the rules are 'rules.yaml'. Pass projections.load\(\"rules.yaml\"\)"),
        (None, "the rules are None. Pass"),
        ({}, "the rules are not in canonical form: they have no tables, entities, projections, guard_prefix, retired"),
        ({"table": {}, "entities": {}, "projections": {}}, r"no tables, .*Pass projections.from_dict\(rules\)"),
    ],
)
def test_a_reader_of_other_rules_is_a_usage_error(rules: Any, message: str) -> None:
    with pytest.raises(projections.UsageError, match=message):
        projections.reader(rules, Scenario(projections.loads(RULES)).store)


def wired(key: dict[str, str]) -> dict[str, Any]:
    return {name: wire(text) for name, text in key.items()}


@pytest.fixture(scope="module")
def live(dynamodb_local_url: str) -> Iterator[Any]:
    """Tables on DynamoDB Local, with a post and a like that functions have processed, and one that they have not."""
    rules = projections.loads(RULES)
    dynamodb = client(endpoint_url=dynamodb_local_url)
    names = {"main": "reader-app", "ledger": "reader-ledger"}
    schemas = {**rules.program.tables, "ledger": LEDGER_SCHEMA}
    for logical, name in names.items():
        create_table(dynamodb, name, schemas[logical], stream=False)
    store = DynamoDBStore(dynamodb, names, schemas)
    Registry(rules.program, store).read_or_create()
    world = Scenario(rules)
    world.given({**POST, "title": "Notes", "blob": {"$binary": "AAE="}}).put(
        {**POST, "SK": "LIKE#ann", "stars": 2}
    ).settle()
    for logical in names:
        for image in world.store.items(logical):  # type: ignore[attr-defined]
            from projections.stores.wire import to_boto

            dynamodb.put_item(TableName=names[logical], Item=to_boto(image))
    dynamodb.put_item(TableName=names["main"], Item={**wired(BOB), "stars": {"N": "4"}})
    yield rules, dynamodb_local_url
    for name in names.values():
        delete_table(dynamodb, name)


def test_a_boto3_table_a_resource_and_a_client_return_items_in_their_own_form(live: Any) -> None:
    rules, url = live
    resource = boto3.resource("dynamodb", endpoint_url=url)
    plain_client = boto3.client("dynamodb", endpoint_url=url)
    table = projections.reader(rules, resource.Table("reader-app"), ledger="reader-ledger")
    item = table.read(POST, own=[BOB])
    assert item is not None
    assert (item["likeCount"], item["stars"], item["blob"].value) == (2, Decimal(3), b"\x00\x01")
    assert not [name for name in item if name.startswith("~")]
    canonical = rules.document
    assert (
        projections.reader(canonical, resource, tables="reader-app", ledger="reader-ledger").read(POST, own=[BOB])
        == item
    )
    wired_reader = projections.reader(rules, plain_client, tables={"main": "reader-app"}, ledger="reader-ledger")
    found = wired_reader.read(wired(POST), own=[wired(BOB)])
    assert found is not None
    assert (found["likeCount"], found["blob"]) == ({"N": "2"}, {"B": b"\x00\x01"})
    ended = wired_reader.wait(wired(BOB), timeout=0)
    assert (ended.state, table.wait({**POST, "SK": "LIKE#ann"}).state) == ("late", "reached")


# A wait keeps its timeout


class SlowReads:
    """Reads that take time by a clock of their own, and which records when each began."""

    def __init__(self, scene: ReadScene, seconds: float) -> None:
        self.now, self.began = 0.0, list[float]()
        self._reads, self._seconds = scene.session.reads, seconds
        session = scene.session._replace(reads=self)  # type: ignore[arg-type]
        self.reader = ItemReader(scene.world.program, session, clock=lambda: self.now, sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def get_many(self, keys: Any) -> Any:
        self.began.append(self.now)
        self.now += self._seconds
        return self._reads.get_many(keys)


@pytest.mark.parametrize("timeout", [0.3, 1, 5])
@pytest.mark.parametrize("seconds", [0.004, 0.2, 3])
def test_no_look_of_a_wait_begins_after_its_timeout(scene: ReadScene, timeout: float, seconds: float) -> None:
    scene.put(BOB)
    slow = SlowReads(scene, seconds)
    ended = slow.reader.wait(BOB, timeout)
    assert ended.state == "late"
    assert ended.seconds == slow.now <= timeout + 2 * seconds
    assert slow.began[-2] <= timeout
    assert seconds > 0.004 or slow.began[-2] > timeout - 0.02  # the last look is not wasted


@pytest.mark.parametrize("timeout", [None, "5", -1, float("nan"), float("inf"), True, 10**400])
def test_a_wrong_timeout_is_a_usage_error(scene: ReadScene, timeout: Any) -> None:
    with pytest.raises(
        projections.UsageError, match=r"the timeout of `wait` is .*\. Pass a number of seconds, at least 0"
    ):
        scene.reader.wait(BOB, timeout=timeout)


# Items that do not exist yet

TAG = {"PK": "TAG#aws", "SK": "STATS"}
OTHERS = """
table: {key: [PK, SK]}
entities:
  Post: {key: {PK: "POST#{postId}", SK: META}}
  Vote: {key: {PK: "TAG#{tag}", SK: "VOTE#{userId}"}}
  Tag: {key: {PK: "TAG#{tag}", SK: STATS}, match: {kind: tag}, derived: true}
  Mirror: {key: {PK: "MIRROR#{postId}", SK: META}}
  Slug: {key: {PK: "SLUG#{slug}", SK: META}}
projections:
  tags: {from: Post, each: {tag: tags}, aggregate: {into: Tag, set: {posts: count}}}
  hidden: {from: Post, where: {hidden: [true]}, each: {tag: tags}, aggregate: {into: Tag, set: {hiddenPosts: count}}}
  votes:
    from: Vote
    aggregate: {into: Tag, set: {votes: count, worth: sum(worth), mean: avg(worth), best: max(number(worth))}}
  voters: {from: Vote, top: {into: Tag, as: voters, by: worth, limit: 3, attributes: [userId]}}
  mirror: {from: Post, copy: {into: Mirror, attributes: [tags]}}
  slug: {from: Post, copy: {into: Slug, attributes: [tags]}}
"""


def test_an_item_that_does_not_exist_yet_has_the_values_of_the_rules_that_create_it() -> None:
    scene = ReadScene(OTHERS)
    scene.put(POST, tags=["aws"], slug="notes")
    item = scene.reader.read(TAG, own=[POST])
    assert item == {**TAG, "kind": "tag", "posts": 1, "hiddenPosts": 0}
    votes = dict.fromkeys(("votes", "worth", "mean", "best"), "votes sets it when it sees the item")
    assert item.uncorrected == {**votes, "voters": "voters sets it when it sees the item"}
    scene.world.settle()
    assert scene.reader.read(TAG, own=[POST]).uncorrected == {}


def test_rules_that_set_attributes_of_own_items_have_to_be_active() -> None:
    rules = """
table: {key: [PK, SK]}
entities:
  Post: {key: {PK: "POST#{postId}", SK: META}}
  Like: {key: {PK: "POST#{postId}", SK: "LIKE#{userId}"}}
projections:
  worth: {from: Like, aggregate: {into: Post, set: {worth: sum(twofold)}}}
  twofold: {from: Like, compute: {set: {twofold: "stars * 2"}}}
"""
    scene = ReadScene(rules)
    scene.put(POST)
    scene.put(BOB, stars=1)
    scene.world.settle()
    head, _, body = rules.replace("stars * 2", "stars * 3").partition("projections:\n")
    reader = ItemReader(World(body, head + "projections:\n").program, scene.session)
    item = reader.read(POST, own=[BOB])
    assert item is not None
    assert (item["worth"], item.corrected) == (2, ())
    assert item.uncorrected == {"worth": "twofold, which sets attributes of a Like, is not active in this form"}
