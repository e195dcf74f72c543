"""A job that has ended goes on when there is more input: exactly once, whatever fails meanwhile.

What was emitted only because the input had ended is emitted again when it ends again; all else is
emitted once.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import add
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import VirtualClock, in_virtual_time
from tests.support.depth import more_in_depth, one_by_one
from tests.support.faults import Fault, FaultKind
from tests.support.harness import assert_nothing_is_left_over
from tests.support.pipelines import Outside, Portions, acted_on, config, effects, run
from tests.support.pressure import checkpoints, slowly
from tests.unit.runtime.ending.jobs import run_for
from tests.unit.runtime.test_job_faults import faulty
from tidelog import (
    Job,
    JobConfig,
    JobRunner,
    JsonLinesSource,
    RestoreFrom,
    SplitReader,
    SqliteSink,
    StatefulProcessor,
    TextFileSource,
    TidelogError,
    Tumbling,
    UnalignedConfig,
)
from tidelog.errors import StorageError
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectStore

Night = Mapping[str, Sequence[Any]]
"""The records of each split that are there."""


class Growing(Portions):
    """Portions of which more is there in each night."""

    has_end = True
    resumes_ended_splits = True

    def __init__(self, *nights: Night, pause: float = 0.3) -> None:
        super().__init__({}, portion=5, pause=pause)
        self.nights = nights
        self.read = Counter[Any]()
        self.begin(0)

    def begin(self, night: int) -> None:
        self.splits = {name: list(records) for name, records in self.nights[night].items()}

    def open(self, split: str, position: Any) -> SplitReader:
        reader = super().open(split, position)
        read = reader.read

        def counted() -> list[Any] | None:
            records = read()
            self.read.update(records or ())
            return records

        reader.read = counted  # type: ignore[method-assign]
        return reader


def words(count: int, first: int = 0) -> list[str]:
    return [f"w{(first + n) % 7}" for n in range(count)]


def three_nights() -> Growing:
    """The second night has a longer split and a new one, the third new ones alone."""
    one, two, three = words(30), words(17, 30), words(25, 3)
    return Growing(
        {"a": one, "b": []},
        {"a": one + two, "b": [], "c": three},
        {"a": one + two, "b": [], "c": three, "d": words(9, 5), "e": words(1)},
    )


def counted(source: Growing, sink: Outside, copies: Outside) -> Job:
    """Each word as it is, and how often it came."""
    job = Job("counted")
    read = job.source(source)
    read.rebalance().map(str).sink(copies, name="copies")
    read.key_by(str).count().sink(sink, name="counts")
    return job


def counts_of(source: Growing, nights: int) -> Counter[Any]:
    """What so many nights emit: the counts of all that was there, in each night."""
    emitted = Counter[Any]()
    for night in source.nights[:nights]:
        emitted.update(Counter(str(word) for split in night.values() for word in split).items())
    return emitted


def assert_night(source: Growing, night: int, sink: Outside, copies: Outside) -> None:
    assert Counter(sink.records) == counts_of(source, night + 1), night
    assert sorted(copies.records) == sorted(source.records), night
    assert sink.prepared == copies.prepared == {}, night


@pytest.mark.usefixtures("workers")
@one_by_one(
    changelog={"log": True, "tables": False},
    table=["memory", "rocksdb"],
    mode=["off", "always"],
    parallelism=[1, 2, 3],
)
def test_each_night_reads_what_is_new_and_emits_the_final_values_of_all(
    changelog: bool, table: Any, mode: Any, parallelism: int
) -> None:
    source, sink, copies, store = three_nights(), Outside(), Outside(), MemoryStore()
    unaligned = UnalignedConfig(mode)
    chosen = config(changelog=changelog, table=table, unaligned=unaligned, parallelism=parallelism)
    for night in range(3):
        source.begin(night)
        result = run(counted(source, sink, copies), store, chosen, seed=night)
        assert not result.already_complete
        assert_night(source, night, sink, copies)
    assert source.read == Counter(source.records), "each record once"


def test_the_parallelism_may_change_between_two_nights() -> None:
    source, sink, copies, store = three_nights(), Outside(), Outside(), MemoryStore()
    for night, parallelism in enumerate((1, 4, 2)):
        source.begin(night)
        run(counted(source, sink, copies), store, config(parallelism=parallelism), seed=night)
        assert_night(source, night, sink, copies)


def test_where_nothing_is_new_nothing_is_read_emitted_or_stored() -> None:
    source, sink, copies, store = three_nights(), Outside(), Outside(), MemoryStore()
    first = run(counted(source, sink, copies), store)
    stored, emitted = checkpoints(store), sorted(sink.records)
    again = run(counted(source, sink, copies), store, seed=2)
    assert again.nothing_new and again.already_complete and again.checkpoints == 0
    assert again.restored_checkpoint == first.last_checkpoint
    assert (checkpoints(store), sorted(sink.records)) == (stored, emitted)
    assert source.read == Counter(source.records)
    source.begin(1)
    run(counted(source, sink, copies), store, seed=3)
    assert_night(source, 1, sink, copies)


def test_a_job_that_finishes_once_reads_nothing_more() -> None:
    source, sink, copies, store = three_nights(), Outside(), Outside(), MemoryStore()
    run(counted(source, sink, copies), store)
    source.begin(1)
    once = run(counted(source, sink, copies), store, config(finish_once=True), seed=2)
    assert once.already_complete and not once.nothing_new
    assert Counter(sink.records) == counts_of(source, 1)
    run(counted(source, sink, copies), store, seed=3)
    assert_night(source, 1, sink, copies)


def test_a_job_that_has_finished_once_does_not_go_on_later() -> None:
    source, sink, copies, store = three_nights(), Outside(), Outside(), MemoryStore()
    run(counted(source, sink, copies), store, config(finish_once=True))
    source.begin(1)
    again = run(counted(source, sink, copies), store, seed=2)
    assert again.already_complete and not again.nothing_new
    assert Counter(sink.records) == counts_of(source, 1)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_whichever_storage_call_fails_each_night_is_emitted_once(after: bool) -> None:
    def nights(store: Callable[[], ObjectStore], inner: ObjectStore, at: object) -> None:
        source, sink, copies = three_nights(), Outside(), Outside()
        for night in range(2):
            source.begin(night)
            job = partial(counted, source, sink, copies)
            try:
                run(job(), store(), config(parallelism=1), seed=night)
            except TidelogError as error:
                assert "injected" in str(error), (at, error)
            run(job(), inner, config(parallelism=1), seed=10 + night)
            assert_night(source, night, sink, copies)
        assert_nothing_is_left_over(inner)

    inner = MemoryStore()
    counting = faulty(inner)
    nights(lambda: counting, inner, "no fault")
    calls = len(counting.calls)
    assert calls > 40
    every = more_in_depth(3, 1)
    for nth in range(1 + after % every, calls + 1, every):
        inner = MemoryStore()
        failing = faulty(inner, Fault(FaultKind.FAIL, nth=nth, after=after))
        nights(lambda failing=failing: failing, inner, nth)


@one_by_one(seconds=[0.4, 1.1, 2.3, 2.9, 3.1, 3.3, 3.6, 4.2], parallelism=[1, 3])
def test_a_crash_at_any_time_of_a_night_leaves_no_trace(seconds: float, parallelism: int) -> None:
    source, sink, copies, store = three_nights(), Outside(), Outside(), MemoryStore()
    chosen = config(parallelism=parallelism)
    for night in range(3):
        source.begin(night)
        try:
            run_for(counted(source, sink, copies), store, seconds, chosen)
        except AssertionError as error:
            assert "it ended before it was to crash" in str(error)
        run(counted(source, sink, copies), store, chosen, seed=10 + night)
        assert_night(source, night, sink, copies)


@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 2), (2, 3), (3, 1)])
def test_a_crash_while_the_job_ends_emits_the_rest_and_reads_nothing_more(
    before: int, after: int
) -> None:
    source = Growing({"a": words(5), "b": range(60)}, {"a": words(5), "b": range(90)}, pause=0.01)
    sink, copies, store, clock = Outside(), Outside(), MemoryStore(), VirtualClock()

    def slowly_ending(clock: VirtualClock) -> Job:
        job = Job("slow")
        read = job.source(source)
        read.rebalance().map(str).sink(copies, name="copies")
        slowly(read.key_by(str).count().rebalance(), clock, 0.2).sink(sink, name="counts")
        return job

    async def until_it_ends(runner: JobRunner) -> None:
        assert runner.incarnation is not None
        driver = runner.incarnation.driver
        while not (driver.previous and driver.previous.before_end and sink.records):
            await runner.effects.clock.sleep(0.2)
            assert runner.running

    chosen = config(parallelism=before, buffer_records=3)
    job = slowly_ending(clock)
    acted_on(job, store, until_it_ends, at=0, settings=chosen, crash=True, clock=clock)
    assert not checkpoints(store)[-1].final
    assert 0 < len(sink.records) < len(counts_of(source, 1))
    source.begin(1)
    for night in range(2):
        clock = VirtualClock()
        world = in_virtual_time(night, clock)
        chosen = config(parallelism=after)
        asyncio.run(JobRunner(slowly_ending(clock), store, chosen, world).run())
        assert Counter(sink.records) == counts_of(source, night + 1)
        assert len(copies.records) == len(source.nights[night]["b"]) + 5


def keyed_twice(source: Growing, sink: Outside) -> Job:
    """How many words came how often."""
    job = Job("twice")
    often = job.source(source).key_by(str).aggregate(lambda _: 1, add, name="often")
    often.key_by(lambda pair: pair[1]).aggregate(lambda _: 1, add, name="many").sink(sink)
    return job


@pytest.mark.parametrize("parallelism", [1, 3])
def test_final_values_count_once_in_a_second_aggregation(parallelism: int) -> None:
    source, sink, store = three_nights(), Outside(), MemoryStore()
    emitted = 0
    for night in range(3):
        source.begin(night)
        run(keyed_twice(source, sink), store, config(parallelism=parallelism), seed=night)
        expected = Counter(Counter(source.records).values())
        assert dict(sink.records[emitted:]) == expected
        emitted = len(sink.records)


def test_a_window_that_has_ended_is_emitted_once_and_an_open_one_in_each_night() -> None:
    first, second = [*range(0, 2500, 50)], [*range(2500, 4200, 50)]
    source = Growing({"a": first}, {"a": first + second})

    def windows(sink: Outside) -> Job:
        job = Job("windows")
        timed = job.source(source).event_time(int).key_by(lambda _: "all")
        timed.window(Tumbling(1000)).count().sink(sink)
        return job

    sink, store = Outside(), MemoryStore()
    run(windows(sink), store)
    source.begin(1)
    run(windows(sink), store, seed=2)
    emitted = [(window, count) for _, window, count in sink.records]
    ended, final, again = [(0, 20), (1000, 20)], [(2000, 10)], [(2000, 20), (3000, 20), (4000, 4)]
    assert emitted == ended + final + again


class Reminder(StatefulProcessor):
    """Emits a record a second after it came, by processing time."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.words = handle.getListState("words", "word string")

    def handleInputRows(self, key: Any, rows: Iterable[Any], timerValues: Any) -> Iterable[Any]:
        for row in rows:
            self.words.appendValue((row,))
        self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 1000)
        return ()

    def handleExpiredTimer(self, key: Any, timerValues: Any, expired: Any) -> Iterable[Any]:
        yield from [word for (word,) in self.words.get()]
        self.words.clear()


def test_a_timer_of_processing_time_fires_once_however_often_the_input_ends() -> None:
    source, sink, store = three_nights(), Outside(), MemoryStore()

    def reminded() -> Job:
        job = Job("reminded")
        timed = job.source(source).key_by(lambda word: word)
        timed.transform_with_state(Reminder, time_mode="processing").sink(sink)
        return job

    for night in range(3):
        source.begin(night)
        run(reminded(), store, seed=night)
        # What had no second left is still to come.
        assert Counter(sink.records) <= Counter(source.records)
    assert sink.records


def test_a_job_that_is_stopped_before_its_end_ends_after_the_next_start() -> None:
    source, sink, copies, store = three_nights(), Outside(), Outside(), MemoryStore()
    job = partial(counted, source, sink, copies)
    acted_on(job(), store, lambda runner: runner.stop("halt"), at=1.0)
    assert sink.records == []
    run(job(), store, seed=2)
    assert_night(source, 0, sink, copies)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_another_store_goes_on_from_the_end_of_a_job(parallelism: int) -> None:
    source, sink, copies = three_nights(), Outside(), Outside()
    old, new = MemoryStore("memory://old"), MemoryStore("memory://new")
    ended = run(counted(source, sink, copies), old, config(parallelism=2))
    source.begin(1)
    emitted, copied = Outside(), Outside()
    assert ended.last_checkpoint is not None
    runner = JobRunner(
        counted(source, emitted, copied),
        new,
        config(parallelism=parallelism),
        effects(2),
        restore_from=RestoreFrom(ended.last_checkpoint, old),
    )
    asyncio.run(runner.run())
    assert Counter(emitted.records) == counts_of(source, 2) - counts_of(source, 1)
    assert sorted(copied.records + copies.records) == sorted(source.records)
    source.begin(2)
    run(counted(source, emitted, copied), new, config(parallelism=parallelism), seed=3)
    assert Counter(emitted.records) == counts_of(source, 3) - counts_of(source, 1)


def enriched(source: Growing, table: Portions, sink: Outside, *, computed: bool) -> Job:
    job = Job("enriched")
    rows = job.source(table, name="table")
    if computed:
        rows = rows.key_by(lambda row: row[0]).aggregate(lambda row: row[1], max, name="newest")
    words = job.source(source, name="words").key_by(lambda word: word)
    joined = words.enrich(
        rows.key_by(lambda row: row[0]), lambda w, row: (w, row), time="processing"
    )
    joined.sink(sink)
    return job


def table(**rows: int) -> Growing:
    return Growing({"rows": list(rows.items())}, {"rows": [*rows.items(), ("w1", 9)]})


def test_a_table_that_is_read_first_is_so_in_each_night() -> None:
    source, rows, sink, store = three_nights(), table(w0=1, w1=2), Outside(), MemoryStore()
    for night in range(2):
        source.begin(night)
        rows.begin(night)
        run(enriched(source, rows, sink, computed=False), store, seed=night)
    newest = {row: count for (_, row), count in Counter(sink.records).items() if row is not None}
    assert {("w0", 1), ("w1", 2), ("w1", 9)} == newest.keys()
    assert sorted(word for word, _ in sink.records) == sorted(source.records)


def test_a_job_whose_table_is_computed_says_at_its_start_that_it_does_not_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source, rows, sink, store = three_nights(), table(w0=1, w1=2), Outside(), MemoryStore()
    with caplog.at_level(logging.INFO):
        run(enriched(source, rows, sink, computed=True), store)
    assert "operator newest makes a table that is read before the rest" in caplog.text
    source.begin(1)
    again = run(enriched(source, rows, sink, computed=True), store, seed=2)
    assert again.already_complete and not again.nothing_new


def test_a_part_that_may_have_to_end_alone_is_named_at_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    job, sink = Job("two"), Outside()
    endless = Portions({"a": words(3)})
    both = job.source(three_nights(), name="ends").union(job.source(endless, name="perhaps-not"))
    both.sink(sink)
    with caplog.at_level(logging.INFO):
        run(job, MemoryStore())
    assert "perhaps-not declares no end (has_end)" in caplog.text


def orders(folder: Path, database: Path) -> Job:
    job = Job("orders")
    totals = job.source(JsonLinesSource(folder)).key_by(lambda row: row.user)
    totals.aggregate(lambda row: row.n, add).sink(
        SqliteSink(database, "totals", {"user": "text", "total": "integer"}, key=("user",))
    )
    return job


def on_disk(job: Job, store: ObjectStore) -> Any:
    return asyncio.run(JobRunner(job, store, JobConfig(table="memory")).run())


def test_files_that_are_new_or_have_grown_are_read(tmp_path: Path) -> None:
    import sqlite3  # noqa: PLC0415  # this test alone

    folder, database, store = tmp_path / "in", tmp_path / "totals.db", MemoryStore()
    folder.mkdir()
    assert not on_disk(orders(folder, database), store).already_complete, "an empty folder"
    expected = Counter[str]()
    for night, lines in enumerate(([("a", 1), ("b", 2)], [("a", 3)], [("c", 4), ("b", 5)])):
        for name in ("grows", f"new-{night}"):
            with (folder / f"{name}.jsonl").open("a") as file:
                for user, n in lines:
                    file.write(f'{{"user": "{user}", "n": {n}}}\n')
                    expected[user] += n
        on_disk(orders(folder, database), store)
        assert on_disk(orders(folder, database), store).nothing_new
        (folder / f"new-{night}.jsonl").unlink()  # it was read
        with sqlite3.connect(database) as connection:
            assert dict(connection.execute("select user, total from totals")) == expected


def copying(path: Path, sink: Outside) -> Job:
    job = Job("lines")
    job.source(TextFileSource(path)).sink(sink)
    return job


def test_a_last_line_without_a_newline_may_get_one_and_not_go_on(tmp_path: Path) -> None:
    path, sink, store = tmp_path / "lines", Outside(), MemoryStore()
    path.write_bytes(b"one\ntwo")
    on_disk(copying(path, sink), store)
    path.write_bytes(b"one\ntwo\r\nthree")
    on_disk(copying(path, sink), store)
    assert sink.records == ["one", "two", "three"]
    path.write_bytes(b"one\ntwo\r\nthree hundred\n")
    with pytest.raises(StorageError, match="more of that line"):
        on_disk(copying(path, sink), store)
    path.write_bytes(b"one\n")
    with pytest.raises(StorageError, match="at least 14 bytes"):
        on_disk(copying(path, sink), store)
    assert sink.records == ["one", "two", "three"]
