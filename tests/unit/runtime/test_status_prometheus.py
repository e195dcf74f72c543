"""A status as Prometheus text, and served to a scrape."""

import asyncio
import re
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.request import urlopen

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import tidelog
from tests.support.documentation import BLOCKS
from tests.support.statuses import STATUS
from tidelog import ConfigError, JobStatus
from tidelog.runtime.status.checkpoints import CheckpointsStatus
from tidelog.runtime.status.prometheus import StatusCollector
from tidelog.runtime.status.series import SERIES
from tidelog.runtime.status.storage import UploadsStatus


def text_of(status: JobStatus | None) -> str:
    collector = StatusCollector()
    registry = CollectorRegistry()
    registry.register(collector)
    if status is not None:
        collector.update(status)
    return generate_latest(registry).decode()


def test_nothing_is_served_before_the_first_status() -> None:
    assert text_of(None) == ""


def values_at(found: Any, *path: str) -> Iterator[Any]:
    """The values at a key of a status in JSON: of a list in each of its objects."""
    if isinstance(found, list | tuple):
        for each in found:
            yield from values_at(each, *path)
    elif not path:
        yield from found.values() if isinstance(found, dict) else [found]
    elif path[0] == "*":
        for each in found.values():
            if isinstance(each, dict):
                yield from values_at(each, *path[1:])
    elif found[path[0]] is not None:
        yield from values_at(found[path[0]], *path[1:])


def test_every_figure_is_served_with_the_value_that_it_has_in_json() -> None:
    served: dict[str, list[float]] = {}
    for family in text_string_to_metric_families(text_of(STATUS)):
        for sample in family.samples:
            served.setdefault(sample.name, []).append(sample.value)
    plain = msgspec.to_builtins(STATUS)
    for series in SERIES:
        found = [v for key in series.keys for v in values_at(plain, *key.split("."))]
        expected = [series.metric.value(value) for value in found]
        assert sorted(served[series.prometheus_name]) == sorted(expected) != [], series.name
    assert served["tidelog_checkpoint_p99_seconds"] == [0.15]
    assert served["tidelog_memory_used_bytes"] == [1221.0]


def test_every_declared_series_is_served_with_its_labels_and_no_other() -> None:
    collector = StatusCollector()
    collector.update(STATUS)
    found = {
        sample.name: tuple(sample.labels)
        for family in collector.collect()
        for sample in family.samples
    }
    assert found == {series.prometheus_name: series.labels for series in SERIES}


def test_every_declaration_is_a_sentence_and_says_what_to_look_at_it_for() -> None:
    for series in SERIES:
        metric = series.metric
        assert re.fullmatch(r"[A-Z0-9].{10,}\.", metric.help), metric.name
        assert metric.watch.endswith((".", "`.")) and len(metric.watch) > 10, metric.name


def test_what_is_unknown_is_left_out() -> None:
    blank = replace(
        STATUS, restore=None, store=None, checkpoints=CheckpointsStatus(), uploads=UploadsStatus()
    )
    text = text_of(blank)
    for name in ("restore_", "store_", "checkpoint_log_", "log_upload_latency_"):
        assert f"tidelog_{name}" in text_of(STATUS)
        lines = [line for line in text.splitlines() if line.startswith(f"tidelog_{name}")]
        assert lines == []


def test_a_scrape_is_answered_from_the_newest_status() -> None:
    with tidelog.serve_metrics(port := free_port()) as update:
        assert scrape(port) == ""
        update(STATUS)
        assert 'tidelog_state_bytes{job_name="words"} 41.0' in scrape(port)
        update(replace(STATUS, job="later"))
        assert 'tidelog_state_bytes{job_name="later"} 41.0' in scrape(port)
        assert '"words"' not in scrape(port)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
def test_metrics_have_one_address_of_this_machine_unless_another_is_asked_for() -> None:
    port = free_port()
    with tidelog.serve_metrics(port):
        scrape(port)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port))
    with tidelog.serve_metrics(port, "0.0.0.0"):
        socket.create_connection(("127.0.0.2", port)).close()


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def scrape(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text: str = answer.read().decode()
        return text


async def test_the_program_of_the_guide_serves_its_metrics() -> None:
    program: dict[str, object] = {}
    exec(BLOCKS["monitoring 0"], program)
    scraped: list[str] = []
    served = asyncio.ensure_future(program["serve"](port := free_port()))  # type: ignore[operator]
    while not (scraped and 'tidelog_running{job_name="counting"} 1.0' in scraped[-1]):
        assert not served.done(), served
        await asyncio.sleep(0.01)
        try:
            scraped.append(await asyncio.to_thread(scrape, port))
        except OSError:
            continue  # not up yet
    served.cancel()
    await asyncio.gather(served, return_exceptions=True)
    assert "tidelog_records_read_total" in scraped[-1]


def refusal(port: int, host: str = "127.0.0.1") -> str:
    with pytest.raises(ConfigError) as raised, tidelog.serve_metrics(port, host):
        pass
    return str(raised.value)


def test_a_port_in_use_is_an_error_that_names_the_option() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        text = refusal(port)
    assert f"metrics port {port}; expected a free port; found Address already in use" in text
    assert "--metrics-port" in text


@pytest.mark.parametrize(
    ("port", "host", "says"),
    [
        (-1, "127.0.0.1", "metrics port -1; expected a number from 0 to 65535"),
        (65536, "127.0.0.1", "metrics port 65536; expected a number from 0 to 65535"),
        (0, "no such host.invalid", "metrics host 'no such host.invalid'; expected a name or addr"),
    ],
)
def test_a_wrong_address_is_an_error_that_names_it(port: int, host: str, says: str) -> None:
    assert says in refusal(port, host)


def test_without_the_library_only_the_use_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert callable(tidelog.serve_metrics)
    assert "pip install 'tidelog[metrics]'" in refusal(0)
