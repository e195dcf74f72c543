"""A server that takes every write and remembers how it was asked."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread


@dataclass(frozen=True)
class Asked:
    """What a client sent in a request."""

    method: str
    path: str
    headers: dict[str, str]
    """By their names in small letters."""
    body: bytes


@contextmanager
def recorder(asked: list[Asked], certificate: Path | None = None) -> Iterator[str]:
    """Run it and give its endpoint; `certificate` has key and certificate of one that has TLS."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked.append(Asked(self.command, self.path, headers, body))
            self.send_response_only(200)
            self.send_header("ETag", '"1"')
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        do_PUT = do_POST = _handle

        def log_message(self, format: str, *args: object) -> None:
            """Requests are not logged to standard error."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    # The pause between two looks whether it is to end, which every test waits for.
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"{'http' if certificate is None else 'https'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
