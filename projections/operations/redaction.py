"""Redaction: removes keys, values, or both from the reports of functions (`REDACT`).

It is applied where logs, quarantine messages and errors leave a function, not where they are made. Texts are not searched
for what must be removed. Instead, only known texts may stay, and everything else becomes `…`. Known are the texts of this
package's own messages, the texts of the rules and the names of tables.

Keys become hashes, such as `key:5f2a…`: HMAC-SHA256 of the encoded key, cut to 96 bits. The ledger has its secret of 256
bits:

    pk   sk       what
    A    secret   `secret`: made by the first function that needs it, and never changed

Everyone who can read the secret in the ledger can also read the keys of all items there, so a separate store for secrets
would not protect more. It is in the audit's partition, because the audit may need it first and cannot write to others. The
ledger's id cannot be the secret: it has 32 bits and can be guessed.
"""

from __future__ import annotations

import builtins
import hmac
import re
import secrets
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from types import CodeType
from typing import TYPE_CHECKING, Any, Protocol

from projections.engine.ledger_items import LEDGER
from projections.engine.store import ItemKey, Missing, Purpose, Store, Update, all_items
from projections.errors import ConditionFailed, Misconfigured, StoreError, UsageError
from projections.language.keys import decode_key, encode_key
from projections.language.program import Program

if TYPE_CHECKING:
    from projections.engine.rejections import Rejected
    from projections.engine.stages import Outcome
    from projections.operations.audit import Audited


HASH = "key:"
"""The prefix of the hash of a key."""

SECRET = ItemKey(LEDGER, "A", "secret")

_DIGITS = 24

_GONE = "…"

_OPERATIONS = ("Query", "Scan")
"""Operations of DynamoDB whose names are one word."""

_SAFE = " ()[]{}'\":;,./|=-_"
"""Characters that may stay around what is removed."""

_SHOWN = re.compile(r"""a (?:string|number), ('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")
"""A value as `language.values.shown` prints it."""


class Handler(Protocol):
    """The handler of a function's events."""

    def handle(self, event: Any, remaining: Callable[[], float]) -> dict[str, Any]: ...


def key_hash(secret: str, key: str) -> str:
    """Return the hash of an encoded key."""
    digest = hmac.digest(secret.encode(), key.encode("utf-8", "surrogatepass"), "sha256")
    return HASH + digest.hex()[:_DIGITS]


def read_secret(store: Store) -> str | None:
    """Return the secret of a ledger's hashes, None if there is none yet. Raises what the store raises."""
    item = store.get(SECRET)
    return item["secret"]["S"] if item is not None else None


class Redaction:
    """Removes keys, values or both. `names` are the names of tables, `document` the rules. It never raises."""

    def __init__(self, mode: str, document: Mapping[str, Any], names: Collection[str], store: Store) -> None:
        self._keys, self._values = mode in ("keys", "all"), mode in ("values", "all")
        self._document = document
        self._names = names
        self._store = store
        self._secret: str | None = None

    # Keys

    def key(self, key: str) -> str:
        """Return an encoded key as it may be shown."""
        if not self._keys:
            return key
        secret = self._make_secret()
        return key_hash(secret, key) if secret is not None else f"{HASH}unknown"

    def hash(self, key: str | None) -> str | None:
        """Return the hash of a key where hashes are shown, else None."""
        return self.key(key) if self._keys and key is not None else None

    def _make_secret(self) -> str | None:
        """Return the secret, which is made if needed; None if the ledger cannot be read or written."""
        with suppress(StoreError):
            self._secret = self._secret or read_secret(self._store)
            if self._secret is None:
                made, absent = {"secret": {"S": secrets.token_hex(32)}}, Missing(("secret",))
                with suppress(ConditionFailed):  # another function was faster
                    self._store.write(Update(SECRET, set=made, condition=absent, purpose=Purpose("secret")))
                self._secret = read_secret(self._store)
        return self._secret

    # Texts

    def text(self, text: str, key: str | None = None) -> str:
        """Return a reason or an error without keys and values. `key` is the encoded key of the item it is about.

        Where only keys are removed, quoted values stay, unless the key is unknown or they have a word of it.
        """
        kept: list[str] = []
        at = 0
        if not self._values and key is not None:
            words = set(_words(key)) - set(_words(" ".join(self._own)))
            for match in _SHOWN.finditer(text):
                if not any(word in match[1].lower() for word in words) and not words & set(_words(match[1])):
                    kept += [*self._safe_parts(text[at : match.start()]), match[0]]
                    at = match.end()
        kept += self._safe_parts(text[at:])
        return re.sub(rf"{_GONE}(?:[\s{_GONE}]*{_GONE})+", _GONE, "".join(kept))

    def _safe_parts(self, text: str) -> Iterator[str]:
        at = 0
        for match in self._may_stay.finditer(text):
            yield _without(text[at : match.start()])
            yield match[0]
            at = match.end()
        yield _without(text[at:])

    @cached_property
    def _own(self) -> frozenset[str]:
        """Return the texts of the rules and the names of tables."""
        return frozenset({*_texts(self._document), *self._names})

    @cached_property
    def _may_stay(self) -> re.Pattern[str]:
        """Return a pattern of texts that may stay, longest first: phrases, and words of messages, rules and tables."""
        phrases, names = set[str](), set(_OPERATIONS)
        for constant in _constants():
            for piece in re.split(r"\{[^{}]*\}", constant):
                if "\n" in piece:  # a docstring
                    continue
                if " " in piece and len(re.findall(r"[a-zA-Z]", piece)) > 1:
                    phrases.add(piece)
                elif re.fullmatch(r"(?:[A-Z][a-z]+){2,}", piece):
                    names.add(piece)
        names |= {name for name, cls in vars(builtins).items() if isinstance(cls, type) and issubclass(cls, Exception)}
        names |= {text for text in self._own if re.search(r"\w", text)}
        alone = [rf"(?<!\w){re.escape(name)}(?!\w)" for name in sorted(names, key=len, reverse=True)]
        return re.compile("|".join([*map(_begun, sorted(phrases, key=len, reverse=True)), *alone]))

    # Reports of a function

    def redact_rejected(self, record: Rejected) -> Rejected:
        """Return a rejected record as it may be logged."""
        key, target = (self.key(text) if text is not None else None for text in (record.key, record.target))
        sources, reason = tuple(map(self.key, record.triggered_by)), self.text(record.reason, record.key)
        return replace(record, key=key, reason=reason, target=target, triggered_by=sources)

    def outcome(self, outcome: Outcome) -> Outcome:
        """Return the outcome of a batch as it may be logged."""
        reason = self.text(outcome.failed_reason) if outcome.failed_reason is not None else None
        healing = {self.text(what): (times, self.key(key)) for what, (times, key) in outcome.healing.items()}
        rejected = tuple(map(self.redact_rejected, outcome.rejected))
        return replace(outcome, failed_reason=reason, rejected=rejected, healing=healing)

    def redact_audit(self, audited: Audited) -> Audited:
        """Return the outcome of an audit as it may be logged: drift by kind, rule, attribute and keys."""
        drifts = []
        for drift in audited.drifts:
            target, source = self.key(drift.target), self.key(drift.source) if drift.source else drift.source
            drifts.append(replace(drift, target=target, source=source, actual=None, expected=None))
        return replace(audited, drifts=tuple(drifts))

    def error(self, error: Exception) -> Exception:
        """Return an error as Lambda may log it, with its traceback and without the errors that caused it."""
        text = self.text(str(error))
        known = isinstance(error, Misconfigured)
        safe_error = Misconfigured(text) if known else RuntimeError(f"{type(error).__name__}: {text}")
        return safe_error.with_traceback(error.__traceback__)

    def guarding(self, handler: Handler) -> Handler:
        """Return a handler whose errors are redacted."""
        return _Guarded(handler, self)


class _Guarded:
    def __init__(self, handler: Handler, redaction: Redaction) -> None:
        self._handler = handler
        self._redaction = redaction

    def handle(self, event: Any, remaining: Callable[[], float]) -> dict[str, Any]:
        try:
            return self._handler.handle(event, remaining)
        except Exception as error:
            redacted = self._redaction.error(error)
        raise redacted  # outside the handler, so that the original error is not its context


def _begun(phrase: str) -> str:
    """Return a pattern of a phrase that neither begins inside a word nor is the beginning of a quoted value."""
    return (r"(?<![\w'\"])" if phrase[0].isalnum() else "") + re.escape(phrase)


def _words(text: str) -> Iterable[str]:
    return re.findall(r"\w+", text.lower())


def _without(text: str) -> str:
    """Return what remains of a text that must not stay: the punctuation around it."""
    core = text.strip(_SAFE)
    if not core:
        return text
    start = text.index(core)
    return f"{text[:start]}{_GONE}{text[start + len(core) :]}"


def _texts(value: object) -> Iterator[str]:
    """Yield all strings of a document, and the names in them."""
    if isinstance(value, str):
        yield value
        yield from re.findall(r"[A-Za-z_]\w+(?:\([^()]*\))?", value)
        yield from re.findall(r"\{([^{}|]+)", value)  # expressions in templates
        yield from re.findall(r"[A-Za-z_]\w+", value)
    elif isinstance(value, Mapping):
        for name, nested in value.items():
            yield from _texts(name)
            yield from _texts(nested)
    elif isinstance(value, list | tuple):
        for nested in value:
            yield from _texts(nested)


def _constants() -> Iterator[str]:
    """Yield the strings in the code of all loaded modules of this package, with the parts of its messages."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("projections", "handlers") and (spec := getattr(module, "__spec__", None)):
            code = spec.loader.get_code(name) if hasattr(spec.loader, "get_code") else None
            yield from _strings(code)


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, CodeType):
        yield from _strings(value.co_consts)
    elif isinstance(value, tuple | frozenset):
        for nested in value:
            yield from _strings(nested)


_WHOLE = "key"
"""The attribute of ledger items whose partition key does not have the whole key."""


def is_hash(text: str) -> bool:
    """Return whether a text is the hash of a key."""
    digits = text.removeprefix(HASH)
    return text.startswith(HASH) and len(digits) == 24 and set(digits) <= set("0123456789abcdef")


def _key_text(item: Mapping[str, Mapping[str, str]]) -> str:
    """Return the encoded key that an item of the ledger is about; empty if there is none."""
    if _WHOLE in item:
        return item[_WHOLE].get("S", "")
    kind, _, key = item["pk"]["S"].partition("|")
    return key if kind == "E" else key.partition("|")[2] if kind in ("G", "F", "W") else ""


def key_of(program: Program, store: Store, text: str) -> ItemKey:
    """Return the key of an item by its hash. May read all items of the tables and of the ledger. Raises UsageError."""
    secret = read_secret(store)
    if secret is None:
        raise UsageError(
            "no function has hashed a key: the ledger has no secret. Functions hash keys if the parameter Redact is set"
        )
    made = partial(key_hash, secret)
    for table, schema in program.tables.items():
        for image in all_items(partial(store.scan, table, attributes=schema.key_attributes)):
            if made(encode_key(item_key := schema.key(table, image))) == text:
                return item_key
    for image in all_items(partial(store.scan, LEDGER, attributes=("pk", _WHOLE))):
        if (key := _key_text(image)) and made(key) == text:
            return decode_key(key)
    raise UsageError(f"{text}: no item of the tables or of the ledger has a key with this hash")
