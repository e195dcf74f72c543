"""A status as Prometheus text, and served to a scrape."""

import asyncio
import re
import socket
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, generate_latest

import tidelog
from tests.support.documentation import BLOCKS
from tests.support.statuses import STATUS
from tidelog.errors import ConfigError
from tidelog.runtime.status.checkpoints import CheckpointsStatus
from tidelog.runtime.status.prometheus import StatusCollector
from tidelog.runtime.status.series import SERIES
from tidelog.runtime.status.status import JobStatus
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


@pytest.mark.parametrize(
    "line",
    [
        'tidelog_running{job_name="words"} 1.0',
        'tidelog_checkpoints_completed_total{job_name="words"} 11.0',
        'tidelog_checkpoint_p99_seconds{job_name="words"} 0.15',
        'tidelog_log_upload_requests_total{job_name="words"} 21.0',
        'tidelog_log_queued_bytes{job_name="words"} 27.0',
        'tidelog_materializations_failed_total{job_name="words"} 33.0',
        'tidelog_materialized_bytes{job_name="words"} 42.0',
        'tidelog_log_bytes{job_name="words"} 43.0',
        'tidelog_restore_fraction{job_name="words"} 0.25',
        'tidelog_records_in_total{job_name="words",operator="count"} 900.0',
        'tidelog_busy_seconds_total{job_name="words",operator="count"} 1.5',
        'tidelog_operator_state_bytes{job_name="words",operator="count"} 4096.0',
        'tidelog_backpressured_seconds_total{job_name="words",operator="count"} 2.5',
        'tidelog_late_records_total{job_name="words",operator="count"} 7.0',
        'tidelog_restore_seconds{job_name="words"} 55.5',
        'tidelog_checkpoint_log_full_bytes{job_name="words"} 71.0',
        'tidelog_checkpoint_log_incremental_bytes{job_name="words"} 72.0',
        'tidelog_checkpoint_materialized_full_bytes{job_name="words"} 73.0',
        'tidelog_checkpoint_materialized_incremental_bytes{job_name="words"} 74.0',
        'tidelog_log_upload_latency_seconds{job_name="words",statistic="min"} 80.1',
        'tidelog_log_segment_bytes{job_name="words",statistic="median"} 81.2',
        'tidelog_log_segment_blocks{job_name="words",statistic="p99"} 82.3',
        'tidelog_materialization_duration_seconds{job_name="words",statistic="max"} 83.4',
        'tidelog_store_calls_total{job_name="words",operation="put"} 100.0',
        'tidelog_store_attempts_total{job_name="words",operation="create"} 111.0',
        'tidelog_store_retries_total{job_name="words",operation="get"} 122.0',
        'tidelog_store_hedges_total{job_name="words",operation="list"} 133.0',
        'tidelog_store_failures_total{job_name="words",operation="head"} 144.0',
        'tidelog_store_seconds_total{job_name="words",operation="delete"} 155.5',
        'tidelog_store_latency_seconds{job_name="words",operation="put",statistic="p99"} 106.3',
        'tidelog_store_bytes_written_total{job_name="words"} 160.0',
        'tidelog_store_bytes_read_total{job_name="words"} 161.0',
        'tidelog_generation{job_name="words"} 7.0',
        'tidelog_records_read_total{job_name="words"} 1000.0',
        'tidelog_checkpoints_kept_aligned{job_name="words"} 1.0',
        'tidelog_checkpoint_last_slot{job_name="words"} 17.0',
        'tidelog_in_flight_dropped_buffers_total{job_name="words"} 18.0',
        'tidelog_checkpoint_interval_seconds{job_name="words"} 19.5',
        'tidelog_checkpoint_age_seconds{job_name="words"} 20.5',
        'tidelog_checkpoint_replay_changes{job_name="words"} 75.0',
        'tidelog_checkpoint_inline_bytes{job_name="words"} 76.0',
        'tidelog_checkpoint_transactions{job_name="words"} 77.0',
        'tidelog_checkpoint_unaligned_subtasks{job_name="words"} 78.0',
        'tidelog_checkpoint_start_delay_seconds{job_name="words"} 79.5',
        'tidelog_checkpoint_alignment_seconds{job_name="words"} 80.5',
        'tidelog_checkpoint_durable_seconds{job_name="words"} 93.5',
        'tidelog_checkpoint_manifest_seconds{job_name="words"} 94.5',
        'tidelog_checkpoint_in_flight_buffers{job_name="words"} 88.0',
        'tidelog_checkpoint_in_flight_bytes{job_name="words"} 89.0',
        'tidelog_log_queue_limit_bytes{job_name="words"} 29.0',
        'tidelog_log_upload_attempts_total{job_name="words"} 30.0',
        'tidelog_log_upload_attempts_per_segment{job_name="words",statistic="max"} 90.4',
        'tidelog_materialization_lag_seconds{job_name="words"} 36.5',
        'tidelog_materialization_interval_seconds{job_name="words"} 38.5',
        'tidelog_restore_eta_seconds{job_name="words"} 3.5',
        'tidelog_restore_total_bytes{job_name="words"} 52.0',
        'tidelog_restore_total_changes{job_name="words"} 54.0',
        'tidelog_restore_download_seconds{job_name="words"} 56.5',
        'tidelog_restore_open_seconds{job_name="words"} 57.5',
        'tidelog_restore_fetch_log_seconds{job_name="words"} 58.5',
        'tidelog_restore_replay_seconds{job_name="words"} 59.5',
        'tidelog_memory_budget_bytes{job_name="words"} 1000.0',
        'tidelog_memory_used_bytes{job_name="words"} 1221.0',
        'tidelog_local_copies_objects{job_name="words"} 301.0',
        'tidelog_local_copies_used_bytes_total{job_name="words"} 304.0',
        'tidelog_local_copies_fetched_total{job_name="words"} 305.0',
        'tidelog_local_copies_kept_total{job_name="words"} 307.0',
        'tidelog_local_copies_damaged_total{job_name="words"} 308.0',
        'tidelog_local_copies_refused_total{job_name="words"} 309.0',
        'tidelog_watermark_ms{job_name="words",operator="count"} 1.7e+12',
        'tidelog_longest_call_seconds{job_name="words",operator="count"} 0.375',
        'tidelog_task_busy_seconds_total{job_name="words",operator="count",subtask="0"} 1.125',
        "tidelog_task_backpressured_seconds_total"
        '{job_name="words",operator="count",subtask="0"} 2.25',
        'tidelog_task_input_bytes{job_name="words",operator="count",subtask="1"} 68.0',
        'tidelog_task_input_buffers{job_name="words",operator="count",subtask="1"} 69.0',
        "tidelog_task_materialization_lag_seconds"
        '{job_name="words",operator="count",subtask="0"} 67.5',
    ],
)
def test_a_figure_is_served_under_its_name(line: str) -> None:
    assert line in text_of(STATUS).splitlines()


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


@pytest.mark.parametrize("part", ["checkpoints", "uploads", "materializations", "state"])
def test_every_number_of_a_part_is_served(part: str) -> None:
    text = text_of(STATUS)
    for field in fields(getattr(STATUS, part)):
        value = getattr(getattr(STATUS, part), field.name)
        if isinstance(value, int | float) and field.name != "last_slot":
            assert f" {float(value)}\n" in text, field.name


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


def test_the_program_of_the_guide_serves_its_metrics() -> None:
    program: dict[str, object] = {}
    exec(BLOCKS["monitoring 0"], program)
    scraped: list[str] = []

    async def run() -> None:
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

    asyncio.run(run())
    assert "tidelog_records_read_total" in scraped[-1]


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def refusal(port: int, host: str = "127.0.0.1") -> str:
    with pytest.raises(ConfigError) as raised, tidelog.serve_metrics(port, host):
        pass
    return str(raised.value)


def test_a_port_in_use_is_an_error_that_names_the_option(taken_port: int) -> None:
    text = refusal(taken_port)
    assert f"metrics port {taken_port}; expected a free port; found Address already in use" in text
    assert "--metrics-port" in text


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_out_of_range_is_an_error_with_the_range(port: int) -> None:
    assert f"metrics port {port}; expected a number from 0 to 65535" in refusal(port)


def test_a_host_that_is_not_known_is_an_error_that_names_it() -> None:
    text = refusal(0, "no such host.invalid")
    assert "metrics host 'no such host.invalid'; expected a name or address of this machine" in text


def test_without_the_library_only_the_use_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert callable(tidelog.serve_metrics)
    assert "pip install 'tidelog[metrics]'" in refusal(0)
