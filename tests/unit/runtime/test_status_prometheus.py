"""A status as Prometheus text, and served to a scrape."""

import asyncio
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import tidelog
from tests.support.documentation import BLOCKS
from tests.support.ports import free_port
from tests.support.statuses import STATUS
from tidelog import JobStatus
from tidelog.effects import SystemClock
from tidelog.runtime.status.series import SERIES
from tidelog.runtime.status.serving import StatusCollector


def text_of(status: JobStatus | None, later_s: float = 0.0) -> str:
    collector = StatusCollector(lambda: STATUS.at_s + later_s)
    registry = CollectorRegistry()
    registry.register(collector)
    if status is not None:
        collector.update(status)
    return generate_latest(registry).decode()


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


def values_of(later_s: float) -> dict[str, list[float]]:
    served: dict[str, list[float]] = {}
    for family in text_string_to_metric_families(text_of(STATUS, later_s)):
        for sample in family.samples:
            served.setdefault(sample.name, []).append(sample.value)
    return served


def test_times_that_pass_are_as_long_as_they_are_when_they_are_asked_for() -> None:
    taken, later = values_of(0), values_of(43)
    ages = {name for name, values in taken.items() if later[name] != values}
    assert ages == {
        "tidelog_status_age_seconds",
        "tidelog_checkpoint_age_seconds",
        "tidelog_worker_silent_seconds",
        "tidelog_materialization_lag_seconds",
        "tidelog_task_materialization_lag_seconds",
    }
    for name in ages:
        assert later[name] == [value + 43 for value in taken[name]]


def test_a_materialization_that_is_not_due_is_no_more_so_when_nobody_says_how_the_job_is() -> None:
    status = replace(STATUS, materializations=replace(STATUS.materializations, lag_s=0.0))
    assert 'tidelog_materialization_lag_seconds{job_name="words"} 0.0' in text_of(status, 43)


def test_a_job_that_does_not_say_how_it_is_for_a_minute_is_not_healthy() -> None:
    now_s = SystemClock().monotonic()
    with tidelog.serve_metrics(port := free_port()) as update:
        assert health(port) == (200, "the job lives\n")
        update(replace(STATUS, at_s=now_s - 59))
        assert health(port)[0] == 200
        update(replace(STATUS, at_s=now_s - 61))
        status, text = health(port)
        assert status == 503 and "loop_held" in text
        assert "tidelog_running" in scrape(port)


def health(port: int) -> tuple[int, str]:
    try:
        with urlopen(f"http://127.0.0.1:{port}/healthz") as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def test_every_declared_series_is_served_with_its_labels_and_no_other() -> None:
    collector = StatusCollector(lambda: STATUS.at_s)
    collector.update(STATUS)
    found = {
        sample.name: tuple(sample.labels)
        for family in collector.collect()
        for sample in family.samples
    }
    assert found == {series.prometheus_name: series.labels for series in SERIES}


def test_a_scrape_is_answered_from_the_newest_status() -> None:
    with tidelog.serve_metrics(port := free_port()) as update:
        assert "tidelog_" not in scrape(port)
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


def test_the_usual_series_of_the_process_are_served_beside_those_of_the_job() -> None:
    with tidelog.serve_metrics(port := free_port()) as update:
        update(STATUS)
        text = scrape(port)
    names = {line.split()[0] for line in text.splitlines() if line.startswith("process_")}
    start, cpu, memory, files = "start_time", "cpu", "resident_memory", "open_fds"
    assert names >= {f"process_{start}_seconds", f"process_{cpu}_seconds_total"}
    assert names >= {f"process_{memory}_bytes", f"process_{files}"}
