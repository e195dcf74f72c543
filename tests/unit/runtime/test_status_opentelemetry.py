"""Metrics that reach an OpenTelemetry collector over a real socket, and one that is not there."""

import asyncio
import socket
import sys
from collections.abc import Iterator

import pytest

import tidelog
from tests.support.collector import Collector, collector
from tests.support.documentation import BLOCKS
from tests.support.statuses import STATUS
from tidelog import ConfigError
from tidelog.runtime.status.series import SERIES

UNITS = {"seconds": "s", "bytes": "By", "milliseconds": "ms", None: ""}


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the machine's own environment; a failed request is not repeated for long."""
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    # On a busy machine its answer takes a while, the one to the last export too.
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "10")
    monkeypatch.setattr("tidelog.runtime.status.otlp.LAST_EXPORT_S", 60.0)
    with collector() as running:
        yield running


def points(metric: object) -> dict[tuple[tuple[str, str], ...], float]:
    """Values by attributes."""
    kind = metric.WhichOneof("data")  # type: ignore[attr-defined]
    return {
        tuple(sorted((each.key, each.value.string_value) for each in point.attributes)): (
            point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
        )
        for point in getattr(metric, kind).data_points
    }


def test_every_series_arrives_with_its_kind_unit_text_and_values(there: Collector) -> None:
    with tidelog.export_metrics(there.url) as update:
        update(STATUS)
    metrics = there.metrics()
    assert list(metrics) == [series.name for series in SERIES]
    for series in SERIES:
        metric = metrics[series.name]
        assert metric.description == series.metric.help
        assert metric.unit == UNITS[series.metric.unit]
        expected = {
            tuple(sorted(labels.items())): value for labels, value in series.samples(STATUS)
        }
        assert points(metric) == expected, series.name
        if series.metric.kind == "counter":
            assert metric.WhichOneof("data") == "sum"
            assert metric.sum.is_monotonic
            assert metric.sum.aggregation_temporality == 2  # cumulative
        else:
            assert metric.WhichOneof("data") == "gauge"
    assert set(there.paths) == {"/v1/metrics"}
    assert there.resource()["service.name"] == "tidelog"


def test_the_standard_variables_count(there: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", there.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=secret")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "orders")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "500")
    with tidelog.export_metrics() as update:
        update(STATUS)
        there.wait_until(lambda found: len(found.exports) >= 2)
    assert there.resource()["service.name"] == "orders"
    assert there.resource()["deployment.environment"] == "test"
    sent = {name.lower(): value for name, value in there.headers[-1].items()}
    assert (sent["api-key"], sent["content-encoding"]) == ("secret", "gzip")


async def test_the_program_of_the_guide_exports_its_metrics(there: Collector) -> None:
    program: dict[str, object] = {}
    exec(BLOCKS["monitoring 1"], program)
    exporting = asyncio.ensure_future(program["export"](there.url))  # type: ignore[operator]
    while not there.exports:
        assert not exporting.done(), exporting
        await asyncio.sleep(0.01)
    exporting.cancel()
    await asyncio.gather(exporting, return_exceptions=True)
    assert sum(points(there.metrics()["tidelog_records_read"]).values()) >= 0


def test_the_end_does_not_wait_for_a_collector_that_never_answers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3600")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with tidelog.export_metrics(f"http://127.0.0.1:{silent.getsockname()[1]}") as update:
            update(STATUS)
        # It is over, and the request is still waiting for its answer.
        connection, _ = silent.accept()
        with connection:
            assert connection.recv(4) == b"POST"
            connection.setblocking(False)
            left = bytearray()
            with pytest.raises(BlockingIOError):
                while received := connection.recv(1 << 20):
                    left += received
            assert b"tidelog_records_read" in left
    [record] = caplog.records
    assert (vars(record)["event"], record.args["error"]) == ("metrics_not_exported", "no answer")


@pytest.mark.parametrize("missing", ["opentelemetry.sdk.metrics", "opentelemetry.exporter.otlp"])
def test_without_the_libraries_only_the_use_is_an_error(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "tidelog.runtime.status.otlp", raising=False)
    monkeypatch.delattr("tidelog.runtime.status.otlp", raising=False)
    for name in [name for name in sys.modules if name.startswith(f"{missing}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ConfigError) as raised, tidelog.export_metrics("http://a:4318"):
        pass
    assert "pip install 'tidelog[otel]'" in str(raised.value)
