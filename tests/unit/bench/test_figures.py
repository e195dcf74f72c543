"""What computes a figure, from inputs whose figures are known."""

import dataclasses
from pathlib import Path

import pytest

from tests.support.depth import more_in_depth
from tidelog import Checkpoint, ObjectNotFoundError
from tidelog.checkpoint.manifest import Author
from tidelog.checkpoint.sizes import CheckpointSizes
from tidelog.cost.measured.report import BytesPerChange, OperatorReport
from tidelog.effects import SystemClock
from tidelog.ids import CheckpointId, Generation, Slot
from tidelog.storage.memory import MemoryStore
from tidelog_bench.embedded import checkpoints, predictions
from tidelog_bench.embedded.checkpoints import Completed, Phases
from tidelog_bench.embedded.failure import FailingStages, InjectedFailure
from tidelog_bench.embedded.meter import Mark, Sample, Sampler, mean, per_second
from tidelog_bench.embedded.run import RunSpec
from tidelog_bench.embedded.stores import ArchivedStore
from tidelog_bench.embedded.words import BUFFER, STEP_S, Stages, Words, Workload
from tidelog_bench.experiment import downsampled
from tidelog_bench.experiments.fanout import figures_of
from tidelog_bench.store.latency import NONE, LatencyProfile
from tidelog_bench.store.modelled import CHUNK, ModelledStore

ENTRY = Checkpoint(Slot(1), Author(Generation(0), "a"), CheckpointId(1), 0, "job", ())
WORDS = Words(["fill"], [str(number) for number in range(10_000)])


def checkpoint(
    at_s: float, duration_s: float, *, log: int = 0, new: int = 0, table: int = 0
) -> Completed:
    half = duration_s / 2
    return Completed(
        entry=ENTRY,
        at_s=at_s,
        duration_s=duration_s,
        sizes=CheckpointSizes(log, new, table, 0),
        phases=Phases(half, half / 2, half / 2),
        log_bytes=log + 1_000,
        table_bytes=table,
    )


def test_durations_are_nearest_ranks_in_milliseconds() -> None:
    figures = checkpoints.durations([checkpoint(n, n / 1_000) for n in range(1, 1_001)])
    assert figures["mean_ms"] == pytest.approx(500.5)
    assert [figures[f"p{share}_ms"] for share in (50, 90, 99, 999)] == [500, 900, 990, 999]
    assert figures["max_ms"] == 1_000
    assert figures["barrier_p50_ms"] == pytest.approx(250.0)
    assert figures["upload_p50_ms"] == figures["manifest_p50_ms"] == pytest.approx(125.0)
    assert checkpoints.durations([]) == checkpoints.sizes([]) == {}


def test_a_full_checkpoint_is_log_and_table_and_what_it_adds_is_only_new() -> None:
    found = [
        checkpoint(0, 1, log=1_000_000, new=500_000, table=8_000_000),
        checkpoint(1, 1, log=3_000_000, new=2_000_000, table=8_000_000),
    ]
    figures = checkpoints.sizes(found)
    assert figures["incremental_mean_mb"] == pytest.approx(1.25)
    assert figures["incremental_max_mb"] == 2.0
    assert figures["full_peak_mb"] == pytest.approx(11.001)
    assert figures["full_mean_mb"] == pytest.approx(10.001)
    assert figures["log_peak_mb"] == 3.0
    assert checkpoints.curves(found)["full_mb"] == [(0, 9.001), (1, 11.001)]


def test_an_estimate_knows_the_settings_of_the_run() -> None:
    spec = RunSpec(
        Workload(1_000_000, 200),
        checkpoint_s=1.0,
        materialize_s=10.0,
        rate=10_000.0,
        link=LatencyProfile(30.0, 50.0),
    )
    on = predictions.estimated(spec)
    off = predictions.estimated(dataclasses.replace(spec, changelog=False))
    assert on.log is not None and on.checkpoint_s is not None and off.checkpoint_s is not None
    # Of a change: 9 bytes of the block, 4 of its row's prefix, the word with its length, a count.
    assert on.log.bytes_per_s / on.log.changes_per_s == pytest.approx(9 + 4 + 202 + 1, rel=0.02)
    # About 10,000 changes a second of 230 bytes, for ten seconds and what retention adds.
    assert 20e6 < on.log.peak_bytes < 50e6
    assert 0.06 < on.checkpoint_s < 0.2 < off.checkpoint_s
    slow = predictions.estimated(dataclasses.replace(spec, link=LatencyProfile(300.0, 50.0)))
    assert slow.checkpoint_s is not None and slow.checkpoint_s > on.checkpoint_s + 0.5


def test_compression_is_that_of_the_operator_that_gains_least() -> None:
    def report(stored: float, raw: float) -> OperatorReport:
        size = BytesPerChange(raw, stored) if raw else None
        return OperatorReport("count", (), None, size, None, 0, None, 0.0, 0, 0.0, None, None)

    assert predictions.compression([report(30.0, 40.0), report(18.0, 20.0)]) == 0.9
    assert predictions.compression([report(30.0, 20.0)]) == 1.0
    assert predictions.compression([report(0.0, 0.0)]) == 1.0


async def test_figures_of_a_window_are_those_of_one_checkpoint_and_dollars_of_one_a_second() -> (
    None
):
    written = {"segments/a": 1000, "tables/b": 500, "materializations/c": 300, "checkpoints/d": 200}
    store = ModelledStore(MemoryStore(), SystemClock(), NONE)
    found = [(2, store.totals())]
    for number in range(3, 7):
        for name, size in written.items():
            await store.put(name, bytes(size))
        await store.delete("segments/a")
        found.append((number, store.totals()))
    figures = figures_of(found, store.writes, [0.003, 0.004, 0.005, 0.006])
    assert figures["objects_per_checkpoint"] == 4
    assert figures["table_objects_per_checkpoint"] == 2
    assert figures["log_objects_per_checkpoint"] == 1
    assert figures["requests_per_checkpoint"] == 5
    assert figures["kb_per_checkpoint"] == 2.0
    assert figures["p50_ms"] == pytest.approx(4.0)
    assert figures["dollars_per_day"] == pytest.approx(4 * 86_400 * 0.005 / 1000, rel=1e-4)


def cpu(sample: Sample) -> float:
    return sample.cpu_s


def test_rates_lie_in_the_middle_of_their_steps_and_add_up_to_the_total() -> None:
    samples = [Sample(at, cpu_s, 0, 0, 0) for at, cpu_s in ((10, 5), (11, 6), (13, 6.5), (14, 9.5))]
    assert per_second(samples, cpu) == [(0.5, 1.0), (2.0, 0.25), (3.5, 3.0)]
    assert mean(samples, cpu) == 4.5 / 4
    # Steps are as long as asked for, and a rest is left out.
    points = per_second([Sample(at / 10, at * at / 100, 0, 0, 0) for at in range(8)], cpu, 0.3)
    assert [at for at, _ in points] == pytest.approx([0.15, 0.45])
    assert [rate for _, rate in points] == pytest.approx([0.09 / 0.3, 0.27 / 0.3])


async def test_a_sampler_sees_the_bytes_on_the_wire_and_on_the_disk(tmp_path: Path) -> None:
    store = ModelledStore(MemoryStore(), SystemClock(), LatencyProfile(1.0, 20.0))
    sampler = Sampler(store, every_s=0.01)
    sampler.start()
    await store.put("a", bytes(8 * CHUNK))
    await store.get("a", 0, CHUNK)
    (tmp_path / "file").write_bytes(bytes(100_000))
    sampler.stop()
    first, last = sampler.samples[0], sampler.samples[-1]
    assert last.wire_bytes - first.wire_bytes == 9 * CHUNK
    assert last.written_bytes - first.written_bytes >= 100_000
    assert last.cpu_s >= first.cpu_s > 0
    # A transfer is seen while it is under way.
    assert len({sample.wire_bytes for sample in sampler.samples}) > 3


def stages(rate: float | None) -> Stages:
    made = Stages(WORDS, warm_s=1e9, seconds=1e9, rate=rate)
    assert made.read(0) == ["fill"]
    made.read(1)  # the stream begins now
    return made


@pytest.mark.parametrize("rate", more_in_depth([1_000.0], [200.0, 1_000.0, 20_000.0]))
def test_at_a_rate_a_buffer_holds_no_more_than_a_step_of_it(rate: float) -> None:
    assert len(stages(rate).read(1) or ()) == rate * STEP_S
    assert stages(100.0).read(1_000) == []  # that is not due yet
    assert stages(None).read(1) == WORDS.stream[:BUFFER]


def test_a_job_lags_by_the_time_its_missing_records_take() -> None:
    limited = stages(100.0)
    assert limited.filled is not None
    later = Mark(limited.filled.wall + 10.0, 0.0, 1 + 700)
    assert limited.lag_s(later) == pytest.approx(3.0)
    assert limited.lag_s(Mark(later.wall, 0.0, 1 + 1_000)) == stages(None).lag_s(later) == 0.0


def test_without_a_warm_up_the_first_buffer_after_the_fill_is_measured() -> None:
    at_once = Stages(WORDS, warm_s=0.0, seconds=1e9, records=1)
    assert at_once.read(0) == ["fill"]
    assert at_once.read(1) == WORDS.stream[:BUFFER]
    assert at_once.start is not None and at_once.start.records == 1
    assert at_once.read(1 + BUFFER) is None
    assert at_once.end is not None and at_once.end.records == 1 + BUFFER


def test_an_armed_source_fails_once_and_knows_where_it_goes_on() -> None:
    failing = FailingStages(Words(["a"] * 10, ["b"] * 1_000), rate=1e-9)
    assert failing.read(0) == ["a"] * 10
    assert failing.read(10) == ["b"]  # the first one is due at once
    assert failing.read(11) == []
    failing.arm()
    with pytest.raises(InjectedFailure):
        failing.read(11)
    assert failing.read(10) == ["b"]
    assert failing.resumed is not None and failing.resumed.records == 10
    assert failing.caught_up is None
    assert failing.read(11) == []
    assert failing.caught_up is not None and failing.caught_up.records == 11


async def test_an_archive_has_the_log_that_the_job_has_deleted() -> None:
    store = ArchivedStore()
    await store.create("segments/00000001-p-0000000001.seg", b"log")
    await store.put("tables/00000001/a.sst", b"rows")
    for name in [info.name async for info in store.list("")]:
        await store.delete(name)
    with pytest.raises(ObjectNotFoundError):
        await store.get("segments/00000001-p-0000000001.seg")
    assert [info.size async for info in store.archive.list("")] == [3]


def test_every_peak_and_dip_of_a_sawtooth_survives() -> None:
    points = [(float(at), float(at % 100)) for at in range(1_000)]
    few = downsampled(points, 40)
    assert len(few) <= 40 and few == sorted(few) and set(few) <= set(points)
    assert [value for _, value in few].count(99.0) == 10
    assert downsampled([(0.0, 3.0), (1.0, 2.0)], 4) == [(0.0, 3.0), (1.0, 2.0)]
    assert len(downsampled([(float(at), 1.0) for at in range(999)], 300)) <= 300
