"""A job's status as Prometheus metrics, served over HTTP on this machine.

Invariant: the server's thread sees only finished statuses, never the running job.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, is_dataclass
from typing import Any

from tidelog.errors import ConfigError
from tidelog.runtime.status.distribution import Distribution
from tidelog.runtime.status.status import JobStatus, Metric

try:
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.core import Metric as Family
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ConfigError(
        "Prometheus metrics",
        expected="the library prometheus-client",
        found=str(error),
        action="pip install 'tidelog[metrics]'",
    ) from error

Sample = tuple[dict[str, str], Any]
"""Labels and a value."""


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

    def collect(self) -> Iterable[Family]:
        """Nothing before the first status."""
        status = self._status
        return metrics_of(status) if status is not None else ()


def metrics_of(status: JobStatus) -> Iterator[Family]:
    """The metrics of a status: one per field that declares one, labelled with the job.

    What is unknown has no sample.
    """
    job = {"job_name": status.job}
    running = Metric("gauge", "running", "1 while records are handled")
    yield _family(running, [(job, float(status.phase == "running"))])
    yield from _families([(job, status)])
    for part in _parts(status).values():
        yield from _families([(job, part)])
    yield from _families([({**job, "operator": each.id}, each) for each in status.operators])
    requests = _parts(status.store) if status.store is not None else {}
    yield from _families([({**job, "operation": name}, each) for name, each in requests.items()])


def _parts(status: Any) -> dict[str, Any]:
    """The fields of a status that are a status themselves."""
    values = {part.name: getattr(status, part.name) for part in fields(status)}
    return {name: value for name, value in values.items() if is_dataclass(value)}


def _families(samples: Sequence[Sample]) -> Iterator[Family]:
    """One family per metric that a status class declares, from its instances and their labels."""
    for declared in fields(samples[0][1]) if samples else ():
        metric = declared.metadata.get("metric")
        if metric is None:
            continue
        values = [(labels, getattr(status, declared.name)) for labels, status in samples]
        if metric.kind != "gauges":
            yield _family(metric, values)
            continue
        for labels, value in values:
            for name, each in asdict(value).items() if value is not None else ():
                yield _family(Metric("gauge", metric.name + name, metric.text), [(labels, each)])


def _family(metric: Metric, samples: Sequence[Sample]) -> Family:
    known = [(labels, value) for labels, value in samples if value is not None]
    names = [*samples[0][0]]
    if any(isinstance(value, Distribution) for _, value in known):
        names.append("statistic")
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(f"tidelog_{metric.name}", metric.text, labels=names)
    for labels, value in known:
        if isinstance(value, Distribution):
            for statistic, each in asdict(value).items():
                family.add_metric([*labels.values(), statistic], each)
        else:
            family.add_metric([*labels.values()], value)
    return family
