"""`projections hash`."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from projections.aws.connection import Live, connect
from projections.cli.options import as_json, live_options
from projections.cli.stack import deployed, stack_option
from projections.terminal import json_text, print_line, print_text

if TYPE_CHECKING:
    from projections.operations.redrive.letters import Letter

__all__ = ["command"]


@click.command("hash")
@click.argument("key", metavar="KEY|HASH")
@live_options
@stack_option
@as_json
@click.option("--quarantine", metavar="URL", help="Quarantine queue. [default: of --stack, or $QUARANTINE_QUEUE_URL]")
def command(
    key: str,
    rules: str | None,
    tables: tuple[str, ...],
    ledger: str | None,
    endpoint_url: str | None,
    region: str | None,
    stack: str | None,
    as_json: bool,
    quarantine: str | None,
) -> int:
    """Print the hash that logs show for a key, or find the key of a hash and its quarantined messages.

    With the parameter Redact, logs show hashes instead of keys, such as key:5f2a09….

    KEY is as for `explain --item`: PK=USER#1,SK=PROFILE, or main|USER#1|PROFILE.

    HASH is searched for in the quarantine, then in the tables, then among the deleted items in the ledger. That can read all
    of them. Writes nothing. Exits with 1 if the hash is not found.

    \b
    Examples:
      projections hash --stack shop PK=USER#1,SK=PROFILE
      projections hash --stack shop key:5f2a09c1
    """
    from projections.inspect.explain.keys import read_key
    from projections.language.keys import encode_key
    from projections.operations.hashes import NO_HASHES, find, is_hash
    from projections.operations.redaction import key_hash, read_secret

    names = deployed(stack, region)
    document = names.document(rules, writes=False)
    live = connect(document, names.tables(tables, document), names.ledger(ledger), endpoint_url, region)
    encoded = "" if is_hash(key) else encode_key(read_key(live.program, key))
    secret = read_secret(live.store)
    if secret is None:
        print_line(NO_HASHES, err=True)
        return 1
    if encoded:
        made = key_hash(secret, encoded)
        print_text(json_text({"key": encoded, "hash": made}) if as_json else made)
        return 0
    url = names.name(quarantine, "QuarantineQueueUrl", "QUARANTINE_QUEUE_URL")
    letters: list[tuple[str, Letter]] = []
    for letter in _quarantined(live, url, region) if url else ():
        letters += [(text, letter) for text in map(encode_key, letter.items) if key_hash(secret, text) == key]
    found = find(live.program, live.store, secret, key)
    known = found.key if found is not None else letters[0][0] if letters else None
    place = found.place if found is not None else "quarantine" if letters else None
    if as_json:
        messages = [{"place": letter.place, "reason": letter.reason} for _, letter in letters]
        print_text(json_text({"key": known, "hash": key, "place": place, "quarantined": messages}))
    else:
        _print(live, key, known, place, [letter for _, letter in letters])
    return 0 if known is not None else 1


def _quarantined(live: Live, url: str, region: str | None) -> list[Letter]:
    """All messages of the quarantine, which go back into it."""
    from projections.aws.clients import client
    from projections.aws.queues import Queue
    from projections.operations.redrive.boxes import Messages
    from projections.operations.redrive.letters import Reader

    box = Messages("quarantine", Queue(client("sqs", region=region), url), Reader(live.program.tables, live.names))
    with closing(box):
        found: list[Letter] = []
        while taken := box.take(1_000):
            found += [letter for letter, _ in taken]
        return found


def _print(live: Live, text: str, key: str | None, place: str | None, letters: list[Any]) -> None:
    if key is None:
        print_line(f"{text}: no item of the tables, nothing in the ledger, and no quarantined message has this hash")
        return
    where = {"ledger": "gone; the ledger has it", "quarantine": "gone; a quarantined message has it"}
    print_line(f"{key} ({where.get(place or '') or f'an item of {live.names[str(place)]}'})")
    for letter in letters:
        print_line(f"quarantined: {letter.place}: {letter.reason}")
