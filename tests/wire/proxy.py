"""A proxy in front of an S3 server that makes it misbehave on request."""

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from time import sleep
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Exchange:
    """One request as the proxy sees it."""

    method: str
    path: str
    conditional: bool
    key: str = ""
    """The access key that signed it."""
    checksum: str = ""
    """The checksum header of a PUT request."""
    agent: str = ""
    """The library that sent it."""


@dataclass
class Behaviour:
    """What the proxy does; tests change it as they go.

    `error(exchange)` is a (status, code) to answer with instead of asking the server, `message`
    and `headers` what is said beside them; without an error the server is asked, with the condition
    of a conditional write left out if `ignore_conditions`, and its answer is lost if
    `lose_answer(exchange)`. While it `stalls` no request is answered. `seen` collects all requests.
    """

    ignore_conditions: bool = False
    message: str = "from the proxy"
    headers: dict[str, str] = field(default_factory=dict)
    error: Callable[[Exchange], tuple[int, str] | None] = lambda exchange: None
    lose_answer: Callable[[Exchange], bool] = lambda exchange: False
    stalls: Event = field(default_factory=Event)
    awaited: Event = field(default_factory=Event)
    """Set when a request waits for an answer that does not come."""
    seen: list[Exchange] = field(default_factory=list)


class QuietHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged to standard error."""


@contextmanager
def serving(handler: type[QuietHandler], context: ssl.SSLContext | None = None) -> Iterator[str]:
    """Run a server, with TLS if there is a context, and give its endpoint."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    # The pause between two looks whether it is to end, which every test waits for.
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"{'http' if context is None else 'https'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def proxy(endpoint: str, behaviour: Behaviour) -> Iterator[str]:
    """Run a proxy before `endpoint` and give its own endpoint."""
    upstream = urlsplit(endpoint).netloc

    class Handler(QuietHandler):
        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            conditional = "If-None-Match" in self.headers
            authorization = self.headers.get("Authorization", "")
            key = authorization.partition("Credential=")[2].partition("/")[0]
            checksum = self.headers.get("x-amz-checksum-sha256", "")
            agent = self.headers.get("User-Agent", "").partition("/")[0]
            exchange = Exchange(self.command, self.path, conditional, key, checksum, agent)
            behaviour.seen.append(exchange)
            if behaviour.stalls.is_set():
                self._stall()
                return
            error = behaviour.error(exchange)
            if error is not None:
                status, code = error
                xml = f"<Error><Code>{code}</Code><Message>{behaviour.message}</Message></Error>"
                kind = {"Content-Type": "application/xml"}
                self._answer(status, behaviour.headers | kind, xml.encode())
                return
            status, headers, answer = self._ask(body)
            if behaviour.lose_answer(exchange):
                self.close_connection = True
                return
            self._answer(status, headers, answer)

        def _stall(self) -> None:
            behaviour.awaited.set()
            self.close_connection = True
            while behaviour.stalls.is_set():
                sleep(0.1)

        def _ask(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
            if behaviour.ignore_conditions:
                del self.headers["If-None-Match"]
            headers = dict(self.headers)
            connection = HTTPConnection(upstream, timeout=30)
            try:
                connection.request(self.command, self.path, body, headers)
                response = connection.getresponse()
                return response.status, dict(response.headers), response.read()
            finally:
                connection.close()

        def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                if name.lower() not in {"content-length", "connection", "transfer-encoding"}:
                    self.send_header(name, value)
            # A HEAD answers with the length of what it does not send.
            length = headers.get("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", length or str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _handle

    with serving(Handler) as endpoint:
        yield endpoint
