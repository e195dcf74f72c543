"""Metrics that reach an OpenTelemetry collector over a real socket, and one that is not there."""

import asyncio
import logging
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from operator import add
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

import tidelog
from tests.support.collector import Collector, collector
from tests.support.documentation import BLOCKS
from tests.support.statuses import STATUS
from tidelog import Callback, ConfigError, Effects, Job, JobConfig, JobRunner, Rate
from tidelog.runtime.status.opentelemetry import metrics_url
from tidelog.runtime.status.series import SERIES
from tidelog.storage.memory import MemoryStore

OFTEN_S = 3.0
"""Time between exports: short, but the SDK gives the last collection no more than this."""
PATIENCE_MS = 60_000
"""How long an export may take that a test asks for."""
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


@pytest.fixture
def export_now(monkeypatch: pytest.MonkeyPatch) -> Callable[[], object]:
    """Exports at once, as the SDK does at the end of each interval."""
    from tidelog.runtime.status import otlp  # noqa: PLC0415  (tests take it away and back)

    readers: list[PeriodicExportingMetricReader] = []

    class Remembered(PeriodicExportingMetricReader):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            readers.append(self)

    monkeypatch.setattr(otlp, "PeriodicExportingMetricReader", Remembered)
    return lambda: readers[-1].force_flush(PATIENCE_MS)


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


def test_each_export_is_made_from_the_newest_status(
    there: Collector, export_now: Callable[[], object]
) -> None:
    with tidelog.export_metrics(there.url, interval_s=OFTEN_S) as update:
        update(replace(STATUS, generation=8))
        there.wait_until(lambda found: generations(found) == [8])
        update(replace(STATUS, generation=9))
        export_now()
        assert generations(there) == [9]
        update(replace(STATUS, generation=10))
    assert generations(there) == [10]
    with tidelog.export_metrics(there.url):
        del there.exports[:]
    assert generations(there) == [], "nothing before the first status"


def generations(found: Collector) -> list[float]:
    """The values of a series in the last export."""
    metric = found.metrics().get("tidelog_generation")
    return [] if metric is None else list(points(metric).values())


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


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged of exports, by us and by the SDK's exporter."""
    return [
        getattr(record, "event", record.name)
        for record in caplog.records
        if record.name.startswith(("tidelog.runtime.status", "opentelemetry.exporter"))
    ]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def counted(work_dir: Path, endpoint: str) -> dict[int, int]:
    """What a job counts that exports its metrics all the time."""
    results: list[tuple[int, int]] = []
    job = Job("counting")
    counts = job.source(Rate(None, limit=20_000)).key_by(lambda n: n % 10)
    counts.aggregate(lambda n: 1, add).sink(Callback(results.append))

    async def run() -> None:
        store = MemoryStore("memory://s")
        runner = JobRunner(job, store, JobConfig(work_dir=work_dir), Effects())
        with tidelog.export_metrics(endpoint, interval_s=0.05) as update:
            running = asyncio.ensure_future(runner.run())
            while not running.done():
                update(tidelog.status_of(runner))
                await asyncio.wait([running], timeout=0.01)
            running.result()

    asyncio.run(run())
    return dict(results)


def test_a_job_whose_collector_is_not_there_counts_as_ever_and_warns_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with caplog.at_level(logging.INFO):
        assert counted(tmp_path, url) == dict.fromkeys(range(10), 2_000)
    assert events(caplog) == ["metrics_not_exported"]
    [record] = [r for r in caplog.records if getattr(r, "event", "") == "metrics_not_exported"]
    assert record.args["endpoint"] == f"{url}/v1/metrics"
    assert "Connection refused" in str(record.args["error"])


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


def test_every_outage_is_logged_at_its_beginning_and_its_end(
    there: Collector, export_now: Callable[[], object], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO), tidelog.export_metrics(there.url) as update:
        update(STATUS)
        for status in (404, 404, 404, 200, 200) * 2:
            there.status = status
            export_now()
        assert len(there.exports) == 10
    assert events(caplog) == ["metrics_not_exported", "metrics_exported_again"] * 2
    reasons = [r.args["error"] for r in caplog.records if "error" in (r.args or ())]
    assert reasons == ["404 Not Found"] * 2


def test_the_logs_of_another_exporter_in_the_process_are_left_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
    from opentelemetry.sdk.metrics.export import MetricsData  # noqa: PLC0415

    url = f"http://127.0.0.1:{free_port()}"
    with tidelog.export_metrics(url) as update:
        update(STATUS)
        other = OTLPMetricExporter(f"{url}/v1/metrics")
        other.export(MetricsData([]))
        other.shutdown()
    assert any(record.name.startswith("opentelemetry.exporter") for record in caplog.records)


@pytest.mark.parametrize(
    ("endpoint", "environment", "expected"),
    [
        ("http://a:4318", {}, "http://a:4318/v1/metrics"),
        ("http://a:4318/", {}, "http://a:4318/v1/metrics"),
        ("https://a/otlp", {}, "https://a/otlp/v1/metrics"),
        ("http://a:4318/v1/metrics", {}, "http://a:4318/v1/metrics"),
        ("http://[::1]:4318", {}, "http://[::1]:4318/v1/metrics"),
        (None, {}, "http://localhost:4318/v1/metrics"),
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://b:1"}, "http://b:1/v1/metrics"),
        (
            None,
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://b:1",
                "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c:2/in",
            },
            "http://c:2/in",
        ),
    ],
)
def test_where_metrics_go(endpoint: str | None, environment: dict[str, str], expected: str) -> None:
    assert metrics_url(endpoint, environment) == expected


@pytest.mark.parametrize(
    "wrong", ["", "localhost:4318", "grpc://a:4317", "http://", "http://a:port", "http://[::1"]
)
def test_a_wrong_url_is_an_error_that_shows_a_right_one(wrong: str) -> None:
    with pytest.raises(ConfigError) as raised, tidelog.export_metrics(wrong):
        pass
    text = str(raised.value)
    assert text.startswith("OpenTelemetry endpoint; expected the URL of a collector's HTTP rec")
    assert f"found {wrong!r}" in text and "http://127.0.0.1:4318" in text


@pytest.mark.parametrize(
    ("name", "value", "interval_s", "says"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318", None, "ENDPOINT; expected the URL"),
        ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "c:1", None, "METRICS_ENDPOINT; expected the URL"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0", None, "OTEL_"),
        ("OTEL_SERVICE_NAME", "orders", 0, "seconds above 0"),
        ("OTEL_SERVICE_NAME", "orders", -1, "seconds above 0"),
    ],
)
def test_a_wrong_variable_or_interval_is_an_error(
    name: str, value: str, interval_s: float | None, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=says), tidelog.export_metrics(interval_s=interval_s):
        pass


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
