"""An OpenTelemetry collector for tests: a real HTTP server that decodes what it gets."""

import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

GIVE_UP_S = 60


@dataclass
class Collector:
    """What arrived so far; answers with `status`."""

    url: str = ""
    status: int = 200
    exports: list[Any] = field(default_factory=list)
    """Requests, decoded."""
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def wait_until(self, holds: Callable[["Collector"], bool]) -> None:
        """Wait for exports; the deadline only ends a test that would hang."""
        with self.changed:
            assert self.changed.wait_for(lambda: holds(self), GIVE_UP_S), self.exports[-1:]

    def metrics(self) -> dict[str, Any]:
        """The metrics of the last export, by name."""
        last = self.exports[-1].resource_metrics if self.exports else ()
        scopes = [scope for resource in last for scope in resource.scope_metrics]
        return {metric.name: metric for scope in scopes for metric in scope.metrics}

    def resource(self) -> dict[str, str]:
        """What the last export says of the process."""
        [resource] = self.exports[-1].resource_metrics
        return {each.key: each.value.string_value for each in resource.resource.attributes}


@contextmanager
def collector(port: int = 0) -> Iterator[Collector]:
    """A collector that listens on this machine."""
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            # Before the answer: whoever has it may look at once for what was exported.
            with found.changed:
                found.exports.append(ExportMetricsServiceRequest.FromString(body))
                found.headers.append(dict(self.headers))
                found.paths.append(self.path)
                found.changed.notify_all()
            answer = ExportMetricsServiceResponse().SerializeToString()
            self.send_response(found.status)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Requests are not printed."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
