"""What is estimated of joins and sessions is what the real runtime stores and logs of them.

It runs in virtual time, RocksDB included.
"""

import asyncio
from collections.abc import Callable
from operator import itemgetter
from random import Random
from typing import Any

import pytest

from tests.property.estimate_runs import TICK_S, History, Paced, RecordingStore, configured
from tests.support.clock import VirtualClock
from tests.support.depth import more_in_depth
from tests.support.pipelines import running
from tidelog import ForeachSink, Job, JobRunner, KeyedStream, Session
from tidelog.changelog.upload_config import UploadConfig
from tidelog.cost.model.embedded import estimate_changelog
from tidelog.cost.model.job import Settings, StoreLink, Workload
from tidelog.cost.model.timed import in_sessions, joined
from tidelog.effects import Effects, InlineOffload
from tidelog.materialize.schedule import MaterializeConfig
from tidelog.state.key_groups import encode_key

KEY_GROUPS = 16
"""What `configured` has."""
WARM_S, SECONDS, DELAY_S = 20.0, 20.0, 2.0
VALUE_BYTES = 120
SETTINGS = Settings(
    sources=1,
    upload=UploadConfig(compression_level=0),
    link=StoreLink(bytes_per_s=1e9, latency_s=0.001),
    materialize=MaterializeConfig(interval=20.0, replay_target=1e9, replay_rate=1e12),
)


Build = Callable[[Callable[[str, float], KeyedStream]], Any]


def measured(build: Build, keys: int) -> tuple[float, float, float]:
    """Changes and bytes of the log a second, and bytes of all rows in the tables."""
    clock, rng, job = VirtualClock(), Random(1), Job("timed")
    store = RecordingStore(clock)

    def drawn(count: int) -> list[Any]:
        """Records (key, time, value), at the time of the clock."""
        now = clock.now_ms()
        return [
            (f"{rng.randrange(keys):08d}", now, rng.randbytes(VALUE_BYTES)) for _ in range(count)
        ]

    def stream(name: str, per_s: float) -> KeyedStream:
        paced = Paced(clock, per_s, drawn, delay_s=5 * TICK_S)
        source = job.source(paced, name=name, parallelism=1)
        timed = source.event_time(itemgetter(1), max_delay_ms=round(1_000 * DELAY_S))
        return timed.key_by(itemgetter(0))

    build(stream).sink(ForeachSink(lambda _: None))

    async def run() -> tuple[int, int]:
        with configured(SETTINGS) as config:
            runner = JobRunner(job, store, config, Effects(clock, rng, InlineOffload()))
            async with running(runner) as task:
                await clock.sleep(WARM_S)
                assert runner.incarnation is not None
                backends = [each.parts.backend for each in runner.incarnation.tasks]
                before = sum(each.metrics.changes for each in backends)
                await clock.sleep(SECONDS)
                assert not task.done(), task
                changes = sum(each.metrics.changes for each in backends) - before
                scans = [each.table.scan(b"", None) for each in backends]
                return changes, sum(len(key) + len(value) for scan in scans for key, value in scan)

    changes, rows = asyncio.run(run())
    log = History(store.lives, WARM_S, WARM_S + SECONDS).written("segments/")
    return changes / SECONDS, sum(each.bytes for each in log) / SECONDS, rows


def check(build: Build, keys: int, workload: Workload) -> None:
    changes_per_s, bytes_per_s, rows = measured(build, keys)
    log = estimate_changelog(workload, SETTINGS).log
    assert log is not None
    assert log.changes_per_s == pytest.approx(changes_per_s, rel=0.25)
    assert log.bytes_per_s == pytest.approx(bytes_per_s, rel=0.25)
    assert workload.table_bytes == pytest.approx(rows, rel=0.25)


def records(per_s: float, keys: int, value_bytes: int) -> Workload:
    key_bytes = len(encode_key(f"{0:08d}"))
    return Workload(per_s, keys, key_bytes=key_bytes, value_bytes=value_bytes)


# A record as it is kept: a tuple of key, time and value.
RECORD_BYTES = 8 + 9 + VALUE_BYTES + 20


@pytest.mark.parametrize(
    ("lower_s", "upper_s"), more_in_depth([(-2.0, 8.0)], [(-2.0, 8.0), (0.0, 0.5)])
)
def test_a_join_is_as_estimated(lower_s: float, upper_s: float) -> None:
    def build(stream: Callable[[str, float], KeyedStream]) -> Any:
        left, right = stream("left", 100), stream("right", 100)
        return left.join(right, (round(1_000 * lower_s), round(1_000 * upper_s)))

    workload = joined(
        records(200, 5_000, RECORD_BYTES),
        lower_s,
        upper_s,
        delay_s=DELAY_S,
        flush_s=1.0,
        key_groups=KEY_GROUPS,
    )
    check(build, 5_000, workload)


@pytest.mark.parametrize(
    ("keys", "gap_s"),
    more_in_depth([(3_000, 4.0), (400, 2.0)], [(40, 3.0), (3_000, 4.0), (400, 2.0)]),
)
def test_sessions_are_as_estimated(keys: int, gap_s: float) -> None:
    """Sessions that hardly ever end, of one record each, and of some."""

    def build(stream: Callable[[str, float], KeyedStream]) -> Any:
        windows = stream("records", 200).window(Session(round(1_000 * gap_s)))
        return windows.max(itemgetter(2))

    workload = in_sessions(records(200, keys, VALUE_BYTES + 2), gap_s, delay_s=DELAY_S, flush_s=1.0)
    check(build, keys, workload)
