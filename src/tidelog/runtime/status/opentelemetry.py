"""A job's status as OpenTelemetry metrics, exported to a collector by OTLP over HTTP.

Invariant: an export never waits for the job nor the job for an export; a collector that does not
answer is an event in the log, once per outage.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from tidelog.errors import ConfigError, optional_library, require
from tidelog.runtime.status.status import JobStatus

_PATH: Final = "/v1/metrics"
_DEFAULT: Final = "http://localhost:4318"
_OWN_VARIABLE: Final = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
_BASE_VARIABLE: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"


@contextmanager
def export_metrics(
    endpoint: str | None = None, *, interval_s: float | None = None
) -> Iterator[Callable[[JobStatus], None]]:
    """Export a job's metrics to an OpenTelemetry collector, by OTLP over HTTP.

    Gives a function that takes the job's status (`status_of`); every export is made from the
    newest one. `endpoint` is the collector's URL, such as http://127.0.0.1:4318; without it, and
    for all else, the OTEL_* environment variables count. `interval_s` is the time between two
    exports, 60 s unless OTEL_METRIC_EXPORT_INTERVAL says otherwise. The end waits at most 2 s for
    the last export. Needs `pip install 'tidelog[otel]'`. Raises ConfigError.
    """
    url = metrics_url(endpoint, os.environ)
    if interval_s is not None:
        require("the interval of exports", interval_s, interval_s > 0, "seconds above 0")
    exporting = _implementation()
    try:
        export = exporting.Export(url, interval_s)
    except ValueError as error:
        raise ConfigError(
            "the OTEL_* environment variables",
            expected="values that OpenTelemetry takes",
            found=str(error),
            action="correct or unset the variable",
        ) from error
    try:
        yield export.update
    finally:
        export.close()


def metrics_url(endpoint: str | None, environment: Mapping[str, str]) -> str:
    """Where metrics go: the collector's URL with the path for metrics; raises ConfigError."""
    if endpoint is not None:
        return _with_path(_checked(endpoint, "OpenTelemetry endpoint"))
    if own := environment.get(_OWN_VARIABLE):
        return _checked(own, _OWN_VARIABLE)
    return _with_path(_checked(environment.get(_BASE_VARIABLE) or _DEFAULT, _BASE_VARIABLE))


def _with_path(url: str) -> str:
    return url if url.endswith(_PATH) else url.rstrip("/") + _PATH


def _checked(url: str, what: str) -> str:
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is none, or half an IPv6 address
        fits = False
    if not fits:
        raise ConfigError(
            what,
            expected="the URL of a collector's HTTP receiver, such as http://127.0.0.1:4318",
            found=repr(url),
            action="correct the URL",
        )
    return url


def _implementation() -> Any:
    """The module that uses the libraries of the extra `otel`; raises ConfigError without them."""
    with optional_library(
        "OpenTelemetry metrics",
        "the libraries opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http",
        "otel",
    ):
        from tidelog.runtime.status import otlp  # noqa: PLC0415  # optional libraries
    return otlp
