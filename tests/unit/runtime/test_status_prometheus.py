"""A status as Prometheus text."""

import socket
from dataclasses import fields, replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tidelog.checkpoint.sizes import CheckpointSizes
from tidelog.errors import ConfigError
from tidelog.ids import Generation, Slot
from tidelog.runtime.status.distribution import Distribution
from tidelog.runtime.status.prometheus import StatusCollector, serve_metrics
from tidelog.runtime.status.status import (
    CheckpointsStatus,
    JobStatus,
    MaterializationsStatus,
    OperatorStatus,
    RequestsStatus,
    RestoreStatus,
    StateStatus,
    StoreStatus,
    UploadsStatus,
)


def spread(start: float) -> Distribution:
    return Distribution(start + 0.1, start + 0.2, start + 0.3, start + 0.4)


def requests(start: int) -> RequestsStatus:
    return RequestsStatus(*range(start, start + 5), start + 5.5, spread(start + 6))


STATUS = JobStatus(
    job="words",
    phase="running",
    at_s=0.0,
    generation=Generation(7),
    operators=(
        OperatorStatus("source", True, 2, 1000, 900, 0.5, 0),
        OperatorStatus("count", False, 2, 900, 0, 1.5, 4096, 2.5, 7),
    ),
    checkpoints=CheckpointsStatus(
        11, 12, 0.13, 0.14, 0.15, 16, None, None, Slot(17), CheckpointSizes(71, 72, 73, 74)
    ),
    uploads=UploadsStatus(21, 22, 23, 24, 25.5, 26, 27, 28.5, spread(80), spread(81), spread(82)),
    materializations=MaterializationsStatus(31, 32, 33, 34.5, 35, None, spread(83)),
    state=StateStatus(41, 42, 43, 44, 45, 46),
    restore=RestoreStatus(Slot(5), 0.25, 3.0, 51, 52, 53, 54, 55.5),
    deleted_objects=61,
    store=StoreStatus(*(requests(n) for n in range(100, 160, 10)), 160, 161),
)


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
    ],
)
def test_a_figure_is_served_under_its_name(line: str) -> None:
    assert line in text_of(STATUS).splitlines()


@pytest.mark.parametrize(
    "part", ["checkpoints", "uploads", "materializations", "state"], ids=lambda part: part
)
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


def test_a_port_in_use_is_an_error_that_names_the_option() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match="--metrics-port"), serve_metrics(port):
            pass
