"""A server of a job's metrics for Prometheus, and of its health for who would start it again.

Invariants: its threads see only finished statuses, never the running job, and answer also while the
event loop of the job is held; times that pass are as long as they are at the scrape.
"""

import errno
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from tidelog.effects import SystemClock
from tidelog.errors import ConfigError, UnavailableError, optional_library
from tidelog.runtime.status.series import SERIES
from tidelog.runtime.status.status import JobStatus

HEALTH: Final = "/healthz"
SILENCE_LIMIT_S: Final = 60.0
"""A job that has not said how it is for so long is not healthy."""
_TAKEN: Final = (errno.EADDRINUSE, errno.EADDRNOTAVAIL)


@contextmanager
def serve_metrics(port: int, host: str = "127.0.0.1") -> Iterator[Callable[[JobStatus], None]]:
    """Serve a job's metrics to Prometheus, at http://HOST:PORT/metrics, and whether it lives at
    /healthz.

    Gives a function that takes the job's status (`status_of`), to be called every few seconds by
    the event loop of the job: a job whose newest status is older than a minute is not healthy, and
    every scrape is answered from the newest one. Needs `pip install 'tidelog[metrics]'`. Raises
    ConfigError, and UnavailableError where the port is taken.
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
    library.ProcessCollector(registry=registry)  # the usual `process_*`, where there is a /proc
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
        kind = UnavailableError if error.errno in _TAKEN else ConfigError
        raise kind(
            f"metrics port {port} of {host}",
            expected="a free port of this machine",
            found=error.strerror,
            action="pass another port (--metrics-port), or end what has this one",
        ) from error
    server.set_app(_with_health(server.get_app(), collector))
    try:
        yield collector.update
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class StatusCollector:
    def __init__(self, now: Callable[[], float] | None = None) -> None:
        self._now = now or SystemClock().monotonic
        self._status: JobStatus | None = None
        self._since = self._now()

    def update(self, status: JobStatus) -> None:
        self._status = status
        self._since = status.at_s

    @property
    def silent_s(self) -> float:
        """How long the job has not said how it is."""
        return max(0.0, self._now() - self._since)

    def collect(self) -> Iterator[Any]:
        """The metric families of the newest status; none before the first one."""
        status, core = self._status, _library().core
        if status is None:
            return
        later_s = max(0.0, self._now() - status.at_s)
        for series in SERIES:
            counts = series.metric.kind == "counter"
            kind = core.CounterMetricFamily if counts else core.GaugeMetricFamily
            family = kind(series.name, series.metric.help, labels=series.labels)
            for labels, value in series.samples(status, later_s):
                family.add_metric([labels[name] for name in series.labels], value)
            if family.samples:
                yield family


def _with_health(metrics: Any, collector: StatusCollector) -> Any:
    """The WSGI application of the metrics, with one more page."""

    def serve(environ: Any, start_response: Any) -> Iterable[bytes]:
        if environ["PATH_INFO"] != HEALTH:
            pages: Iterable[bytes] = metrics(environ, start_response)
            return pages
        silent_s = collector.silent_s
        lives = silent_s < SILENCE_LIMIT_S
        status = "200 OK" if lives else "503 Service Unavailable"
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        text = (
            "the job lives"
            if lives
            else f"the job has not said how it is for {silent_s:.0f} s: a call of a function does "
            "not return, which its log names as loop_held; end the process and start the job again"
        )
        return [f"{text}\n".encode()]

    return serve


def _library() -> Any:
    """The library that the extra `metrics` installs; raises ConfigError without it."""
    with optional_library("Prometheus metrics", "the library prometheus-client", "metrics"):
        import prometheus_client  # noqa: PLC0415  # an optional library
        import prometheus_client.core  # noqa: PLC0415
    return prometheus_client
