"""The inputs of a union may change places between two runs: records in flight stay right."""

from functools import partial

from tests.support.clock import VirtualClock
from tests.support.depth import more_in_depth, one_by_one
from tests.support.pipelines import Outside
from tests.support.pressure import Eager, checkpoints, pressed, resumed, slowly, under_pressure
from tidelog import Job, JobConfig, Schedule, Tumbling

LENGTH = more_in_depth(20, 40)
AHEAD = Eager({"ahead": [("ahead", n, 5_000 + 50 * n) for n in range(LENGTH)]}, 4)
BEHIND = Eager({"behind": [("behind", n, 50 * n) for n in range(LENGTH)]}, 4)


def job(sink: Outside, clock: VirtualClock, *, swapped: bool, windows: bool) -> Job:
    job = Job("swapped")
    streams = []
    for name, source in (("ahead", AHEAD), ("behind", BEHIND)):
        timed = job.source(source, name=name).map(lambda r: r, name=f"of-{name}")
        streams.append(timed.event_time(lambda r: r[2], name=f"time-of-{name}"))
    if swapped:
        streams.reverse()
    merged = slowly(streams[0].union(streams[1]).rebalance(), clock, 0.2)
    if windows:
        keyed = merged.key_by(lambda r: r[0])
        merged = keyed.window(Tumbling(1_000)).aggregate(lambda _: 1, lambda a, b: a + b)
    merged.sink(sink)
    return job


@one_by_one(windows=[False, True], after=[2, 3])
def test_records_in_flight_of_swapped_inputs_are_handled_once_and_in_time(
    windows: bool, after: int
) -> None:
    def settings(parallelism: int) -> JobConfig:
        schedule = Schedule(interval=0.1, timeout=1e6)
        return pressed(parallelism=parallelism, channel_buffers=1, checkpoint=schedule)

    sink, objects = under_pressure(partial(job, swapped=False, windows=windows), settings(2))
    expected = sorted(sink.records)
    assert len(expected) == (2 * LENGTH // 20 if windows else 2 * LENGTH)
    in_flight, swapped = 0, partial(job, swapped=True, windows=windows)
    for checkpoint in checkpoints(objects)[:-1:2]:
        in_flight += any(state.in_flight is not None for _, state in checkpoint.subtasks())
        again = resumed(swapped, objects, sink, checkpoint, settings(after))
        assert sorted(again.records) == expected, checkpoint.slot
    assert in_flight >= 3
