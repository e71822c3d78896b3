"""Tables as people have them, made up: what inference is tried on. Items are in wire form."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from typing import Any

from projections.init.infer import infer, without_rejected_parts
from projections.init.proposal import Proposal, Sample, Table

Item = dict[str, dict[str, Any]]

INDEXED = Table("app", (("PK", "S"), ("SK", "S")), {"GSI1": ((("GSI1PK", "S"),), (("GSI1SK", "S"),))})


def item(**attributes: Any) -> Item:
    """Strings, numbers and lists of strings in wire form."""

    def wire(value: Any) -> dict[str, Any]:
        if isinstance(value, list):
            return {"L": [wire(one) for one in value]}
        return {"S": value} if isinstance(value, str) else {"N": str(value)}

    return {name: wire(value) for name, value in attributes.items()}


def social(users: int = 12, *, types: bool = False, seed: int = 1) -> list[Item]:
    """Users, posts, likes, comments and orders, with counters and names that the application keeps by hand."""
    chance = random.Random(seed)
    found: list[Item] = []
    people = [f"u{number:03d}" for number in range(users)]
    posts = [(author, f"p{author}{number}") for author in people for number in range(chance.randint(1, 4))]

    def add(kind: str, **attributes: Any) -> None:
        found.append(item(**attributes, **({"type": kind} if types else {})))

    def moment() -> str:
        return f"2026-{chance.randint(1, 9):02d}-{chance.randint(1, 28):02d}T{chance.randint(0, 23):02d}:15:00Z"

    for author, post in posts:
        likes, comments = chance.sample(people, chance.randint(0, 6)), chance.choices(people, k=chance.randint(0, 5))
        for person in likes:
            add("Like", PK=f"POST#{post}", SK=f"LIKE#{person}", createdAt=moment())
        for number, person in enumerate(comments):
            at = moment()
            add(
                "Comment",
                PK=f"POST#{post}",
                SK=f"COMMENT#{at}#c{post}{number}",
                commentId=f"c{post}{number}",
                userId=person,
                userName=f"Name of {person}",
                text="so it is",
                createdAt=at,
                GSI1PK=f"AUTHOR#{person}",
                GSI1SK=at,
            )
        at = moment()
        add(
            "Post",
            PK=f"POST#{post}",
            SK="METADATA",
            postId=post,
            userId=author,
            title=f"Title of {post}",
            createdAt=at,
            likeCount=len(likes),
            commentCount=len(comments),
            tags=["a", "b"],
            GSI1PK=f"USER#{author}",
            GSI1SK=at,
        )
    for person in people:
        mine = sum(author == person for author, _ in posts)
        name = f"Name of {person}"
        add(
            "User",
            PK=f"USER#{person}",
            SK="PROFILE",
            userId=person,
            name=name,
            email=f"{person}@secret.test",
            postCount=mine,
        )
        for number in range(chance.randint(0, 4)):
            order = f"o{person}{number}"
            status = chance.choice(["OPEN", "PAID", "SENT"])
            add("Order", PK=f"USER#{person}", SK=f"ORDER#{order}", orderId=order, status=status, customerName=name)
    chance.shuffle(found)
    return found


def shop() -> tuple[Table, list[Item]]:
    """Orders with lines whose total is kept in the order; products found by an index; snake case, `|`, other key names."""
    chance = random.Random(2)
    table = Table(
        "shop-prod",
        (("hash", "S"), ("range", "S")),
        {"by-product": ((("product_id", "S"),), (("range", "S"),))},
        "expires",
    )
    found = [
        item(hash=f"PRODUCT|{n}", range="INFO", product_id=f"{n}", title=f"Thing {n}", list_price=n * 3)
        for n in range(1, 8)
    ]
    for number in range(1, 15):
        lines = []
        for position in range(1, chance.randint(2, 5)):
            product, quantity = chance.randint(1, 7), chance.randint(1, 5)
            lines.append((product * 3, quantity))
            found.append(
                item(
                    hash=f"ORDER|{1000 + number}",
                    range=f"LINE|{position}",
                    product_id=f"{product}",
                    product_title=f"Thing {product}",
                    price=product * 3,
                    quantity=quantity,
                )
            )
        total = sum(price for price, _ in lines)
        found.append(
            item(
                hash=f"ORDER|{1000 + number}",
                range="INFO",
                order_id=f"{1000 + number}",
                total=total,
                num_lines=len(lines),
            )
        )
        found.append(item(hash=f"CART|{number}", range=f"LINE|{number}", expires=1_700_000_000 + number))
    return table, found


def tenants() -> tuple[Table, list[Item]]:
    """Tenants' names stand before everything else."""
    table = Table("saas", (("pk", "S"), ("sk", "S")))
    found = []
    for tenant in ("acme", "globex", "initech", "umbrella"):
        for user in range(5):
            projects = user % 3
            found.append(item(pk=f"{tenant}#user#{user}", sk="profile", email=f"{user}@x.test", projectCount=projects))
            for project in range(projects):
                found.append(item(pk=f"{tenant}#user#{user}", sk=f"project#{project}", title=f"{project}", budget=3))
    return table, found


def typed() -> tuple[Table, list[Item]]:
    """Keys say nothing, an attribute says what an item is."""
    chance = random.Random(3)
    table = Table("Backend-dev", (("id", "S"),), {"byList": ((("listId", "S"),), ())})

    def new() -> str:
        return str(uuid.UUID(int=chance.getrandbits(128), version=4))

    lists = [item(id=new(), __typename="TodoList", name=f"List {n}", todoCount=0) for n in range(6)]
    todos = [item(id=new(), __typename="Todo", listId=lists[n % 6]["id"]["S"], done="no") for n in range(30)]
    for one in lists:
        one["todoCount"] = {"N": str(sum(todo["listId"] == one["id"] for todo in todos))}
    return table, [*lists, *todos]


def copies() -> tuple[Table, list[Item]]:
    """Posts of an author, and each again under its own id."""
    table = Table("blog", (("PK", "S"), ("SK", "S")))
    found = []
    for number in range(20):
        same = {"postId": f"p{number}", "userId": f"u{number % 5}", "title": f"Title {number}", "words": number * 7}
        found.append(item(PK=f"USER#u{number % 5}", SK=f"POST#p{number}", body="…", **same))
        found.append(item(PK=f"POST#p{number}", SK="METADATA", **same))
    return table, found


def readings() -> tuple[Table, list[Item]]:
    """Numbers as sort keys, one kind of item, and the device's name in all of its readings."""
    table = Table("readings", (("device", "S"), ("at", "N")))
    return table, [item(device=f"d{d}", at=1_700_000_000 + 60 * n, degrees=n) for d in range(5) for n in range(9)]


def junk() -> tuple[Table, list[Item]]:
    """Nothing is like anything."""
    chance = random.Random(5)
    table = Table("junk", (("id", "S"),))
    return table, [
        {
            **item(id=str(uuid.UUID(int=chance.getrandbits(128)))),
            **item(**{f"a{chance.randrange(500)}": 1 for _ in range(3)}),
        }
        for _ in range(30)
    ]


def proposed(items: Sequence[Item], table: Table = INDEXED, *, complete: bool = True, **sample: Any) -> Proposal:
    return without_rejected_parts(infer(table, Sample(items, complete, **sample)))
