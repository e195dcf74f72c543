"""A job's status as Prometheus metrics, served over HTTP on this machine.

Invariant: the server's thread sees only finished statuses, never the running job.
"""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tidelog.errors import ConfigError, optional_library
from tidelog.runtime.status.series import SERIES
from tidelog.runtime.status.status import JobStatus


@contextmanager
def serve_metrics(port: int, host: str = "127.0.0.1") -> Iterator[Callable[[JobStatus], None]]:
    """Serve a job's metrics to Prometheus, at http://HOST:PORT/metrics.

    Gives a function that takes the job's status (`status_of`); every scrape is answered from the
    newest one. Needs `pip install 'tidelog[metrics]'`. Raises ConfigError.
    """
    library = _library()
    if not (isinstance(port, int) and 0 <= port <= 65535):
        raise ConfigError(
            f"metrics port {port}",
            expected="a number from 0 to 65535",
            found=str(port),
            action="pass another port (--metrics-port)",
        )
    collector = StatusCollector()
    registry = library.CollectorRegistry(auto_describe=False)
    registry.register(collector)
    try:
        server, thread = library.start_http_server(port, host, registry)
    except socket.gaierror as error:
        raise ConfigError(
            f"metrics host {host!r}",
            expected="a name or address of this machine",
            found=error.strerror,
            action="pass another host, such as 127.0.0.1 or 0.0.0.0",
        ) from error
    except OSError as error:
        raise ConfigError(
            f"metrics port {port}",
            expected="a free port",
            found=error.strerror,
            action="pass another port (--metrics-port)",
        ) from error
    try:
        yield collector.update
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class StatusCollector:
    """Answers every scrape from the newest status."""

    def __init__(self) -> None:
        self._status: JobStatus | None = None

    def update(self, status: JobStatus) -> None:
        self._status = status

    def collect(self) -> Iterator[Any]:
        """The metric families of the newest status; none before the first one."""
        status, core = self._status, _library().core
        if status is None:
            return
        for series in SERIES:
            counts = series.metric.kind == "counter"
            kind = core.CounterMetricFamily if counts else core.GaugeMetricFamily
            family = kind(series.name, series.metric.help, labels=series.labels)
            for labels, value in series.samples(status):
                family.add_metric([labels[name] for name in series.labels], value)
            if family.samples:
                yield family


def _library() -> Any:
    """The library that the extra `metrics` installs; raises ConfigError without it."""
    with optional_library("Prometheus metrics", "the library prometheus-client", "metrics"):
        import prometheus_client  # noqa: PLC0415  # an optional library
        import prometheus_client.core  # noqa: PLC0415
    return prometheus_client
