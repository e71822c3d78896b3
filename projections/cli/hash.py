"""`projections hash`."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from projections.cli.options import Tables, as_json, quarantine_option, stack_options
from projections.cli.stack import Deployed, deployed
from projections.terminal import json_text, print_line, print_text

if TYPE_CHECKING:
    from projections.aws.connection import Live
    from projections.operations.redrive.messages import FailedMessage

__all__ = ["command"]


@click.command("hash")
@click.argument("key", metavar="KEY|HASH")
@stack_options
@as_json
@quarantine_option
def command(key: str, given: Tables, as_json: bool, quarantine: str | None) -> int:
    """Print the hash that logs show for a key, or find the key of a hash and its quarantined messages.

    With the parameter Redact, logs show hashes instead of keys, such as key:5f2a09….

    KEY is as for `explain --item`: PK=USER#1,SK=PROFILE, or main|USER#1|PROFILE.

    Searches for HASH in the quarantine, then in the tables, then among the deleted items in the ledger. The search may read
    all items. Writes nothing. Exits with 1 if the hash is not found.

    \b
    Examples:
      projections hash --stack shop PK=USER#1,SK=PROFILE
      projections hash --stack shop key:5f2a09c1d87be4a3f06c91e2
    """
    from projections.inspect.explain.keys import read_key
    from projections.language.keys import encode_key
    from projections.language.program import Program
    from projections.operations.hashes import NO_HASHES, find, is_hash
    from projections.operations.redaction import key_hash, read_secret

    there = deployed(given)
    document = there.document()
    encoded = "" if is_hash(key) else encode_key(read_key(Program.from_document(document), key))
    live = there.connect(document)  # after a mistake in the key was reported
    secret = read_secret(live.store)
    if secret is None:
        print_line(NO_HASHES, err=True)
        return 1
    if encoded:
        made = key_hash(secret, encoded)
        print_text(json_text({"key": encoded, "hash": made}) if as_json else made)
        return 0
    url = there.quarantine(quarantine)
    named: list[tuple[str, FailedMessage]] = []
    for message in _quarantined(there, live, url) if url else ():
        named += [(text, message) for text in map(encode_key, message.items) if key_hash(secret, text) == key]
    found = find(live.program, live.store, secret, key)
    known = found.key if found is not None else named[0][0] if named else None
    place = found.place if found is not None else "quarantine" if named else None
    if as_json:
        messages = [{"place": message.place, "reason": message.reason} for _, message in named]
        print_text(json_text({"key": known, "hash": key, "place": place, "quarantined": messages}))
    else:
        _print(live, key, known, place, [message for _, message in named])
    return 0 if known is not None else 1


def _quarantined(there: Deployed, live: Live, url: str) -> list[FailedMessage]:
    """Return all messages of the quarantine, which stay in it."""
    from projections.operations.redrive.messages import Reader
    from projections.operations.redrive.sources import QueueSource

    source = QueueSource("quarantine", there.queue(url), Reader(live.program.tables, live.names))
    with closing(source):
        found: list[FailedMessage] = []
        while taken := source.take(1_000):
            found += [message for message, _ in taken]
        return found


def _print(live: Live, text: str, key: str | None, place: str | None, named: list[Any]) -> None:
    if key is None:
        print_line(f"{text}: no item of the tables, of the ledger or of the quarantine has a key with this hash")
        return
    where = {"ledger": "deleted; found in the ledger", "quarantine": "deleted; found in the quarantine"}
    print_line(f"{key} ({where.get(place or '') or f'an item of {live.names[str(place)]}'})")
    for message in named:
        print_line(f"quarantined: {message.place}: {message.reason}")
