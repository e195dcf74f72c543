"""The export of statuses with the OpenTelemetry SDK; importing it needs the extra `otel`.

Invariants: the exporter's thread sees only finished statuses, never the running job; nothing is
logged of an outage but its beginning and its end.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final

import requests
from opentelemetry.exporter.otlp.proto.http import metric_exporter
from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import SERVICE_NAME, Resource

from tidelog.events import Event
from tidelog.runtime.status.series import SERIES, Series
from tidelog.runtime.status.status import JobStatus

logger = logging.getLogger(__name__)

LAST_EXPORT_S: Final = 2.0
"""How long the end waits for the last export; a job has ended by then and wants to exit."""
_UNITS: Final = {"seconds": "s", "bytes": "By", "milliseconds": "ms", None: ""}


class Export:
    """Exports the newest status again and again until it is closed."""

    def __init__(self, url: str, interval_s: float | None) -> None:
        """Begin; raises ValueError for environment variables that the SDK cannot read."""
        self._status: JobStatus | None = None
        interval_ms = None if interval_s is None else interval_s * 1000
        reader = PeriodicExportingMetricReader(_Exporter(url), export_interval_millis=interval_ms)
        self._provider = MeterProvider([reader], _resource(), shutdown_on_exit=False)
        meter = self._provider.get_meter("tidelog")
        for series in SERIES:
            self._observe(meter, series)

    def update(self, status: JobStatus) -> None:
        self._status = status

    def close(self) -> None:
        """Export the last status and end; what does not arrive in time is given up."""
        try:
            self._provider.shutdown(LAST_EXPORT_S * 1000)
        except Exception as error:
            # The SDK raises a bare Exception of what its readers raised; the job goes on.
            Event.METRICS_NOT_EXPORTED.log(logger, endpoint="the collector", error=error)

    def _observe(self, meter: Meter, series: Series) -> None:
        def observed(_: CallbackOptions) -> Iterable[Observation]:
            status = self._status
            samples = series.samples(status) if status is not None else ()
            return [Observation(value, labels) for labels, value in samples]

        create: Callable[..., Any] = (
            meter.create_observable_counter
            if series.metric.kind == "counter"
            else meter.create_observable_gauge
        )
        create(series.name, [observed], _UNITS[series.metric.unit], series.metric.help)


class _Exporter(metric_exporter.OTLPMetricExporter):
    """Reports the beginning and the end of an outage instead of every failed export."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._answers = _Answers()
        self._lost = False
        self._under_way = False
        self._ended = False
        super().__init__(url, session=self._answers)

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        """Export once, with the SDK's retries."""
        _exporting.now = self._under_way = True
        try:
            result = super().export(metrics_data, timeout_millis or 10_000, **kwargs)
        finally:
            _exporting.now = self._under_way = False
        if not self._ended:
            self._reached(result is MetricExportResult.SUCCESS)
        return result

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """End; an export that is still under way is given up."""
        super().shutdown(timeout_millis, **kwargs)
        if self._under_way:
            self._reached(False)
        self._ended = True

    def _reached(self, reached: bool) -> None:
        lost, self._lost = self._lost, not reached
        if self._lost and not lost:
            error = self._answers.problem
            Event.METRICS_NOT_EXPORTED.log(logger, endpoint=self._url, error=error)
        elif lost and not self._lost:
            Event.METRICS_EXPORTED_AGAIN.log(logger, endpoint=self._url)


class _Answers(requests.Session):
    """Remembers why the last request was not answered as it should."""

    problem = "no answer"

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        self.problem = "no answer"
        try:
            answer = super().request(*args, **kwargs)
        except requests.RequestException as error:
            self.problem = str(error)
            raise
        self.problem = f"{answer.status_code} {answer.reason}"
        return answer


_exporting = threading.local()


def _not_ours(record: logging.LogRecord) -> bool:
    """Drops what the SDK logs of an export of ours, once per attempt."""
    return not getattr(_exporting, "now", False)


logging.getLogger(metric_exporter.__name__).addFilter(_not_ours)


def _resource() -> Resource:
    """What the environment says of this process; the service is tidelog unless it is named."""
    found = Resource.create()
    if str(found.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        return found.merge(Resource({SERVICE_NAME: "tidelog"}))
    return found
