"""A job's status as Prometheus metrics, served over HTTP on this machine.

Invariant: the server's thread sees only finished statuses, never the running job.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields

from tidelog.checkpoint.sizes import CheckpointSizes
from tidelog.errors import ConfigError
from tidelog.runtime.distribution import Distribution
from tidelog.runtime.status import JobStatus, RequestsStatus, StoreStatus

try:
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ConfigError(
        "Prometheus metrics",
        expected="the library prometheus-client",
        found=str(error),
        action="pip install 'tidelog[metrics]'",
    ) from error


@contextmanager
def serve_metrics(port: int, host: str = "127.0.0.1") -> Iterator[Callable[[JobStatus], None]]:
    """Serve the statuses passed to the function that this gives; raises ConfigError."""
    collector = StatusCollector()
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise ConfigError(
            f"metrics port {port}",
            expected="a free port",
            found=error.strerror,
            action="pass another --metrics-port",
        ) from error
    try:
        yield collector.update
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class StatusCollector(Collector):
    """Answers every scrape from the newest status."""

    def __init__(self) -> None:
        self._status: JobStatus | None = None

    def update(self, status: JobStatus) -> None:
        """Take a newer status."""
        self._status = status

    def collect(self) -> Iterable[Metric]:
        """Nothing before the first status."""
        status = self._status
        return metrics_of(status) if status is not None else ()


def metrics_of(status: JobStatus) -> Iterator[Metric]:
    """The metrics of a status, all labelled with the job."""
    for name, text, count in _counters(status):
        counter = CounterMetricFamily(f"tidelog_{name}", text, labels=["job_name"])
        counter.add_metric([status.job], count)
        yield counter
    for name, text, value in _gauges(status):
        gauge = GaugeMetricFamily(f"tidelog_{name}", text, labels=["job_name"])
        if value is not None:
            gauge.add_metric([status.job], value)
        yield gauge
    for name, text, figure in _distributions(status):
        gauge = GaugeMetricFamily(f"tidelog_{name}", text, labels=["job_name", "statistic"])
        _add(gauge, [status.job], figure)
        yield gauge
    yield from _of_operators(status)
    if status.store is not None:
        yield from _of_store(status.job, status.store)


def _counters(status: JobStatus) -> list[tuple[str, str, float]]:
    checkpoints, uploads = status.checkpoints, status.uploads
    tables, state = status.materializations, status.state
    return [
        ("checkpoints_completed", "Completed checkpoints", checkpoints.completed),
        ("checkpoints_failed", "Failed checkpoints", checkpoints.failed),
        ("log_upload_requests", "Uploads of log segments", uploads.requests),
        ("log_upload_failures", "Failed uploads of log segments", uploads.failures),
        ("log_upload_bytes", "Bytes of log uploaded", uploads.bytes),
        ("log_upload_blocks", "Blocks of log uploaded", uploads.blocks),
        ("log_upload_seconds", "Time of log uploads", uploads.seconds),
        ("log_backpressured_seconds", "Writers' wait for the queue", uploads.backpressured_s),
        ("materializations_started", "Materializations started", tables.started),
        ("materializations_completed", "Completed materializations", tables.completed),
        ("materializations_failed", "Failed materializations", tables.failed),
        ("materialization_seconds", "Time of materializations", tables.seconds),
        ("materialization_bytes", "Bytes uploaded by them", tables.uploaded_bytes),
        ("state_updates", "Puts, deletes and appends", state.updates),
        ("state_changes", "Changes of state logged", state.changes),
        ("objects_deleted", "Stored objects deleted", status.deleted_objects),
    ]


def _gauges(status: JobStatus) -> list[tuple[str, str, float | None]]:
    checkpoints, state, restore = status.checkpoints, status.state, status.restore
    return [
        ("generation", "Number of this incarnation", status.generation),
        ("running", "1 while records are handled", float(status.phase == "running")),
        ("restore_fraction", "Restored share", restore.fraction if restore else None),
        ("restore_bytes", "Bytes read by the restore", restore.bytes if restore else None),
        ("restore_changes", "Changes replayed", restore.changes if restore else None),
        ("restore_seconds", "How long it took", restore.seconds if restore else None),
        ("checkpoint_last_seconds", "Duration of the last one", checkpoints.last_duration_s),
        ("checkpoint_p50_seconds", "Median duration", checkpoints.p50_s),
        ("checkpoint_p99_seconds", "99th percentile", checkpoints.p99_s),
        ("checkpoint_manifest_bytes", "Last manifest", checkpoints.manifest_bytes),
        *_sizes(checkpoints.sizes),
        ("log_queued_bytes", "Log waiting for its upload", status.uploads.queued_bytes),
        ("log_largest_segment_bytes", "Largest segment", status.uploads.largest_bytes),
        ("log_bytes", "Log since the last materializations", state.log_bytes),
        ("log_changes", "Changes in that log", state.log_changes),
        ("materialized_bytes", "Last materializations, all files", state.materialized_bytes),
        ("state_bytes", "Size of all tables", state.table_bytes),
    ]


def _sizes(sizes: CheckpointSizes | None) -> list[tuple[str, str, float | None]]:
    return [
        (f"checkpoint_{part.name}", "Last checkpoint", getattr(sizes, part.name, None))
        for part in fields(CheckpointSizes)
    ]


def _distributions(status: JobStatus) -> list[tuple[str, str, Distribution | None]]:
    uploads, tables = status.uploads, status.materializations
    return [
        ("log_upload_latency_seconds", "Uploads of segments", uploads.latency_s),
        ("log_segment_bytes", "Segments", uploads.segment_bytes),
        ("log_segment_blocks", "Blocks per segment", uploads.segment_blocks),
        ("materialization_duration_seconds", "Materializations", tables.duration_s),
    ]


def _add(gauge: GaugeMetricFamily, labels: list[str], figure: Distribution | None) -> None:
    """One sample per statistic; none for an unknown distribution."""
    for statistic in fields(Distribution) if figure is not None else ():
        gauge.add_metric([*labels, statistic.name], getattr(figure, statistic.name))


def _of_operators(status: JobStatus) -> Iterator[Metric]:
    labels = ["job_name", "operator"]
    for name, text, attribute in [
        ("records_in", "Records received", "records_in"),
        ("records_out", "Records sent", "records_out"),
        ("busy_seconds", "Time at work", "busy_s"),
        ("backpressured_seconds", "Time waited for others", "backpressured_s"),
        ("late_records", "Records dropped as late", "late_records"),
    ]:
        counter = CounterMetricFamily(f"tidelog_{name}", text, labels=labels)
        for operator in status.operators:
            counter.add_metric([status.job, operator.id], getattr(operator, attribute))
        yield counter
    state = GaugeMetricFamily("tidelog_operator_state_bytes", "Tables", labels=labels)
    for operator in status.operators:
        state.add_metric([status.job, operator.id], operator.state_bytes)
    yield state


def _of_store(job: str, store: StoreStatus) -> Iterator[Metric]:
    parts = {part.name: getattr(store, part.name) for part in fields(StoreStatus)}
    kinds = {name: part for name, part in parts.items() if isinstance(part, RequestsStatus)}
    labels = ["job_name", "operation"]
    for name, text in [
        ("calls", "Requests to the store"),
        ("attempts", "Attempts at them"),
        ("retries", "Repeated attempts"),
        ("hedges", "Second attempts beside a slow one"),
        ("failures", "Requests given up"),
        ("seconds", "Time of requests"),
    ]:
        counter = CounterMetricFamily(f"tidelog_store_{name}", text, labels=labels)
        for operation, requests in kinds.items():
            counter.add_metric([job, operation], getattr(requests, name))
        yield counter
    latency = GaugeMetricFamily(
        "tidelog_store_latency_seconds", "Last requests", labels=[*labels, "statistic"]
    )
    for operation, requests in kinds.items():
        _add(latency, [job, operation], requests.latency_s)
    yield latency
    for name, count in [("written", store.bytes_written), ("read", store.bytes_read)]:
        size = CounterMetricFamily(f"tidelog_store_bytes_{name}", "Payload", labels=["job_name"])
        size.add_metric([job], count)
        yield size
