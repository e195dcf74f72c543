"""Silent splits hold up no event time, and late records are a stream of their own."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import tidelog
from tests.support.depth import in_pairs
from tests.support.pipelines import Outside, config, effects, run, running
from tests.unit.runtime.test_status import operator
from tidelog import (
    Emitter,
    ForeachSink,
    IterableSource,
    Job,
    JobRunner,
    JobStatus,
    OutputTag,
    PushSource,
    StatefulProcessor,
    Stream,
    TextFileSource,
    Tumbling,
    UserFunctionError,
    status_of,
)
from tidelog.runtime.channels.messages import Idleness, TaskEvent
from tidelog.runtime.channels.output import ChannelOutput
from tidelog.storage.memory import MemoryStore


def status_when(
    build: Callable[[Job], Stream],
    enough: Callable[[list[Any], JobStatus], bool],
    parallelism: int,
    store: MemoryStore | None = None,
) -> JobStatus:
    """Run an endless job in virtual time until its windows and its status are as wanted, and break
    it off.
    """
    job = Job("endless")
    fired: list[Any] = []
    windows = build(job).key_by(lambda _: "all").window(Tumbling(1000))
    windows.count().sink(ForeachSink(fired.append))

    async def steps() -> JobStatus:
        kept = store or MemoryStore()
        runner = JobRunner(job, kept, config(parallelism=parallelism), effects())
        async with running(runner) as task:
            for _ in range(600):
                await runner.effects.clock.sleep(0.5)
                if task.done():
                    task.result()
                if runner.running and enough(fired, status_of(runner)):
                    return status_of(runner)
        raise AssertionError(f"five minutes have passed; fired {fired}")

    return asyncio.run(steps())


@pytest.mark.parametrize("shape", ["chained", "apart"])
def test_subtasks_without_splits_are_idle_from_the_start(shape: str, tmp_path: Path) -> None:
    (tmp_path / "only").write_text("".join(f"{n * 100}\n" for n in range(50)))

    def build(job: Job) -> Stream:
        read = job.source(TextFileSource(tmp_path, follow=True))
        if shape == "apart":
            read.sink(ForeachSink(lambda _: None), name="copies")
        return read.event_time(int)

    status = status_when(build, lambda fired, _: len(fired) == 4, parallelism=3)
    source = operator(status, "source")
    assert (source.splits, source.idle_subtasks) == (1, 2)
    assert operator(status, "window").watermark_ms == 4899


class Quiet(PushSource):
    """One split goes on, the other one gives a record and falls silent."""

    def discover(self) -> list[str]:
        return ["busy", "quiet"]

    async def push(self, split: str, position: Any, emitter: Emitter) -> None:
        await emitter.emit([0], 1)
        for number in range(1, 100 if split == "busy" else 1):
            await emitter.emit([number * 100], number + 1)
        await asyncio.Event().wait()


@pytest.mark.parametrize("shape", ["chained", "apart"])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_split_that_falls_silent_is_idle_after_a_while(shape: str, parallelism: int) -> None:
    def build(job: Job) -> Stream:
        pushed = job.source(Quiet())
        if shape == "apart":
            pushed.sink(ForeachSink(lambda _: None), name="copies")
        return pushed.event_time(lambda n: n, idle_after_ms=5000)

    status = status_when(build, lambda fired, _: len(fired) == 9, parallelism)
    assert operator(status, "window").watermark_ms == 9899
    if shape == "chained":
        assert operator(status, "source").idle_splits >= 1


def test_without_idleness_event_time_waits_for_the_silent_split() -> None:
    status = status_when(
        lambda job: job.source(Quiet()).event_time(lambda n: n),
        lambda fired, status: operator(status, "source").records_in == 101,
        parallelism=1,
    )
    assert operator(status, "source").idle_splits == 0
    assert operator(status, "window").watermark_ms == -1


class OneIsAhead(PushSource):
    """A split whose one record is far ahead in time, and one that goes on from where it was."""

    def __init__(self, until: int) -> None:
        self.until = until

    def discover(self) -> list[str]:
        return ["ahead", "goes on"]

    async def push(self, split: str, position: Any, emitter: Emitter) -> None:
        if split == "ahead" and position is None:
            await emitter.emit([5000], 1)
        if split == "goes on":
            for number in range(position or 0, self.until):
                await emitter.emit([number * 100], number + 1)
        await asyncio.Event().wait()


def test_a_split_that_is_silent_since_a_restart_counts_as_far_as_it_was_read() -> None:
    store = MemoryStore()

    def run_until(records: int, watermark_ms: int) -> JobStatus:
        return status_when(
            lambda job: job.source(OneIsAhead(records)).event_time(lambda n: n),
            lambda _, status: (
                operator(status, "window").watermark_ms == watermark_ms
                and status.checkpoints.completed >= 2
            ),
            parallelism=1,
            store=store,
        )

    run_until(20, watermark_ms=1899)
    resumed = run_until(100, watermark_ms=4999)
    assert operator(resumed, "source").records_in == 80, "it read what it had not"


def test_the_idleness_of_a_first_event_time_is_not_that_of_a_second() -> None:
    def build(job: Job) -> Stream:
        first = job.source(Quiet()).event_time(lambda n: n, idle_after_ms=5000)
        first.sink(ForeachSink(lambda _: None), name="copies")
        return first.event_time(lambda n: n, name="second")

    status = status_when(
        build, lambda fired, status: operator(status, "copies").idle_subtasks == 2, parallelism=2
    )
    assert operator(status, "copies").watermark_ms == 9899
    assert operator(status, "window").watermark_ms == -1


@pytest.mark.parametrize("shape", ["apart", "spread"])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_source_that_ends_is_at_no_moment_idle(
    shape: str, parallelism: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows pass over a join that counts as idle: the records that wait in it would be late."""
    said: list[TaskEvent] = []
    announce = ChannelOutput.announce

    async def noted(output: ChannelOutput, event: TaskEvent) -> None:
        said.append(event)
        await announce(output, event)

    monkeypatch.setattr(ChannelOutput, "announce", noted)
    job = Job("ends")
    read = job.source(IterableSource({"long": range(90), "short": range(9)}))
    if shape == "spread":
        read = read.rebalance().map(int)
    read.sink(Outside(), name="copies")
    read.event_time(int).sink(Outside())
    run(job, MemoryStore(), config(parallelism=parallelism))
    assert Idleness(idle=True) not in said


class Returns(PushSource):
    """The quiet split comes back with what is late by then, and goes on from there."""

    def __init__(self) -> None:
        self.back = asyncio.Event()

    def discover(self) -> list[str]:
        return ["busy", "returning"]

    async def push(self, split: str, position: Any, emitter: Emitter) -> None:
        if split == "busy":
            await emitter.emit(list(range(0, 5000, 10)), 1)
            await asyncio.Event().wait()
        await emitter.emit([0], 1)
        await self.back.wait()
        await emitter.emit([1, 2, 9000], 2)
        await asyncio.Event().wait()


def test_a_split_that_comes_back_counts_again_and_what_is_late_is_counted() -> None:
    source = Returns()

    def enough(fired: list[Any], status: JobStatus) -> bool:
        if len(fired) >= 4:
            source.back.set()
        return status.late_records == 2 and len(fired) == 5

    status = status_when(
        lambda job: job.source(source).event_time(lambda n: n, idle_after_ms=3000),
        enough,
        parallelism=1,
    )
    # The other split is idle, so event time goes as far as the one that came back.
    assert operator(status, "window").watermark_ms == 8999
    assert operator(status, "window").late_records == 2


class Echo(StatefulProcessor):
    """Emits every row that is not late."""

    def init(self, handle: Any) -> None:
        """Nothing to keep."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        yield from rows


@in_pairs(kind=["window", "records", "process"], parallelism=[1, 2], breaks=[False, True])
def test_late_records_are_a_stream_of_their_own_each_once(
    kind: str, parallelism: int, breaks: bool
) -> None:
    records = [(str(n % 5), n * 10) for n in range(3000)] + [("x", n) for n in range(40)]
    on_time, late, store = Outside(), Outside(), MemoryStore()

    def job(breaks: bool) -> Job:
        built, tag = Job("late"), OutputTag("late")
        timed = built.source(IterableSource(records)).event_time(lambda r: r[1])
        keyed = timed.key_by(lambda r: r[0])
        if kind == "process":
            emitted = keyed.transform_with_state(Echo, time_mode="event", late=tag)
        else:
            windows = keyed.window(Tumbling(1000), late=tag)
            lengths = windows.records(lambda key, start, held: ("fired", len(held)))
            emitted = lengths if kind == "records" else windows.count()

        def check(record: Any) -> Any:
            if breaks:
                raise ValueError("broken")
            return record

        emitted.sink(on_time, name="on-time")
        emitted.side_output(tag).map(check).sink(late, name="late")
        return built

    if breaks:
        with pytest.raises(UserFunctionError, match="broken"):
            run(job(True), store, config(parallelism=parallelism))
    run(job(False), store, config(parallelism=parallelism), seed=2)
    assert sorted(late.records) == sorted(records[3000:])
    counted = len(on_time.records)
    if kind != "process":
        counted = sum(record[-1] for record in on_time.records)
    assert counted == 3000


JOB = """
from tidelog import Job, IterableSource, StdoutSink, Tumbling

def job(arguments):
    built = Job("late")
    records = [("a", n * 10) for n in range(2048)] + [("a", 1), ("a", 2)]
    timed = built.source(IterableSource(records)).event_time(lambda r: r[1])
    keyed = timed.key_by(lambda r: r[0])
    windows = keyed.window(Tumbling(1000)).count()
    windows.filter(lambda _: False).sink(StdoutSink())
    return built
"""


def test_every_report_of_run_counts_late_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late_job.py").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    arguments = ["run", "late_job:job", "--table", "memory"]
    plain = tidelog(*arguments, "--store", tmp_path / "plain")
    assert "2 records late" in plain.stderr.splitlines()[-1]
    lines = tidelog(*arguments, "--store", tmp_path / "json", "--json").stdout.splitlines()
    result = json.loads(lines[-1])
    assert (result["event"], result["late_records"]) == ("result", 2)
    assert Counter({o["id"]: o["late_records"] for o in result["operators"]})["window"] == 2
