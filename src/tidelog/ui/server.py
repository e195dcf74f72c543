"""Serves the page and its document to a browser on this machine.

Invariants: it listens on the loopback interface alone; a request gets an answer only under this
server's own name, so a web page elsewhere cannot read it by pointing its name here; there are two
addresses, both are read with GET, and neither changes anything.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTP_PORT
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from tidelog.errors import ConfigError, TidelogError

HOST: Final = "127.0.0.1"
_NAMES: Final = (HOST, "localhost")
ON_DEMAND: Final = "now"
"""The query of a request that wants the store read again."""

Answer = Callable[[bool], bytes]
"""The document as JSON, read on demand or not; called in threads of the server."""


class PageServer(ThreadingHTTPServer):
    daemon_threads = True
    # A port that another process holds is an error also on systems that would share it.
    allow_reuse_port = False

    def __init__(self, port: int, page: bytes, policy: str, document: Answer) -> None:
        self.page = page
        self.policy = policy
        self.document = document
        super().__init__((HOST, port), _Handler)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is no error; anything else is a defect that must show."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


@contextmanager
def page_server(port: int, page: bytes, policy: str, document: Answer) -> Iterator[PageServer]:
    """A server that listens; `serve_forever` answers. Raises ConfigError."""
    try:
        server = PageServer(port, page, policy, document)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"port {port}",
            expected="a free port of this machine",
            found=getattr(error, "strerror", None) or str(error),
            action="pass another --port, or none to get a free one",
        ) from error
    try:
        yield server
    finally:
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    server_version = "tidelog"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:
        if not self._from_here():
            return
        path, _, query = self.path.partition("?")
        if path == "/":
            self._answer(HTTPStatus.OK, "text/html; charset=utf-8", self.server.page)
        elif path == "/document.json":
            # A link to the page may stand anywhere; only the page itself may ask for more.
            if self.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin"):
                self._document(on_demand=query == ON_DEMAND)
            else:
                self._refuse(HTTPStatus.FORBIDDEN, "Open the page itself.")
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "There are / and /document.json.")

    def _not_allowed(self) -> None:
        if self._from_here():
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "Only GET.", {"Allow": "GET"})

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _not_allowed

    def _from_here(self) -> bool:
        """Refuse what came under another name."""
        port = self.server.server_port
        hosts = {f"{name}:{port}" for name in _NAMES}
        if port == HTTP_PORT:  # which a browser leaves out
            hosts.update(_NAMES)
        if self.headers.get("Host") in hosts:
            return True
        text = f"This page is at {self.server.url} only."
        self._refuse(HTTPStatus.MISDIRECTED_REQUEST, text)
        return False

    def _document(self, *, on_demand: bool) -> None:
        try:
            data = self.server.document(on_demand)
        except TidelogError as error:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        else:
            self._answer(HTTPStatus.OK, "application/json", data)

    def _refuse(
        self, status: HTTPStatus, text: str, headers: Mapping[str, str] | None = None
    ) -> None:
        self._answer(status, "text/plain; charset=utf-8", f"{text}\n".encode(), headers)

    def _answer(
        self, status: HTTPStatus, kind: str, data: bytes, headers: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(data)),
            "Content-Security-Policy": f"{self.server.policy}; frame-ancestors 'none'",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cache-Control": "no-store",
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are no events of a job."""
