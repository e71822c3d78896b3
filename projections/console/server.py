"""The HTTP server of the console. It listens on 127.0.0.1, answers GET only, and never writes.

A page of another site must not read tables through the browser of the person who runs the console. So the server refuses
requests whose Host header names another host (a name that was rebound to 127.0.0.1), and requests that the browser marks as
made by another site. The policy of the pages allows neither other hosts nor frames.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from projections.errors import ProjectionsError, UsageError

ADDRESS = "127.0.0.1"

_LOCAL = re.compile(r"(?i)(localhost|127\.0\.0\.1)(:\d{1,5})?")
_SECONDS = 30
"""A connection without a request is closed after this time."""


class Answer(NamedTuple):
    """The answer to a request."""

    text: str
    kind: str = "text/html"
    status: int = HTTPStatus.OK


def json_answer(document: Mapping[str, Any], status: int = HTTPStatus.OK) -> Answer:
    return Answer(json.dumps(document, ensure_ascii=False), "application/json", status)


Route = Callable[[Mapping[str, str], str], Answer]
"""Answers a request from its parameters and the nonce of scripts."""


class Server(ThreadingHTTPServer):
    """Serves routes by path. `failed` makes the answer for an error from a path, a message and a status."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int, routes: Mapping[str, Route], failed: Callable[[str, str, int], Answer]) -> None:
        self.routes, self.failed = routes, failed
        try:
            super().__init__((ADDRESS, port), _Handler)
        except OSError as error:
            raise UsageError(f"port {port}: {error.strerror}. Pass another --port, or omit it") from None

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.server_address[1]}/"

    def answer(self, target: str, nonce: str) -> Answer:
        """Return the answer to a GET of a path with parameters."""
        parts = urlsplit(target)
        route = self.routes.get(parts.path)
        if route is None:
            return self.failed(parts.path, "There is no such page.", HTTPStatus.NOT_FOUND)
        try:
            return route(dict(parse_qsl(parts.query, keep_blank_values=True)), nonce)
        except UsageError as error:
            return self.failed(parts.path, str(error), HTTPStatus.BAD_REQUEST)
        except ProjectionsError as error:
            return self.failed(parts.path, str(error), HTTPStatus.BAD_GATEWAY)
        except Exception as error:
            text = f"internal error, please report it: {type(error).__name__}: {error}"
            return self.failed(parts.path, text, HTTPStatus.INTERNAL_SERVER_ERROR)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = _SECONDS
    server_version, sys_version = "projections", ""

    def do_GET(self) -> None:
        nonce = secrets.token_urlsafe(16)
        if refused := self._refuse():
            answer = Answer(refused + "\n", "text/plain", HTTPStatus.FORBIDDEN)
        else:
            answer = self.server.answer(self.path, nonce)
        self._send(answer, nonce)

    def _refuse(self) -> str:
        """Return why a request is refused; nothing if it is answered."""
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or not _LOCAL.fullmatch(hosts[0]):
            return "The Host header is not localhost or 127.0.0.1."
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            return "Another site made this request. Open the address in the browser."
        return ""

    def _send(self, answer: Answer, nonce: str) -> None:
        body = answer.text.encode("utf-8", "backslashreplace")
        self.send_response(answer.status)
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; connect-src 'self'; "
            "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
        )
        for name, value in (
            ("Content-Type", f"{answer.kind}; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Content-Security-Policy", policy),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cache-Control", "no-store"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing: paths have keys and values of items."""
