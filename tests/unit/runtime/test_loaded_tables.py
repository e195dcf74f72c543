"""A table that ends is read as a whole before what is joined with it: no record finds it absent."""

import logging
from collections import Counter
from random import Random
from typing import Any

import pytest

from tests.support.clock import VirtualClock
from tests.support.depth import one_by_one
from tests.support.pipelines import Outside, Portions, acted_on, config, run
from tests.support.pressure import (
    Eager,
    checkpoints,
    outside_as_of,
    overtaken,
    pressed,
    resumed,
    slowly,
    under_pressure,
)
from tests.support.workers import with_workers
from tidelog import Job, Source, SplitReader
from tidelog.errors import UserFunctionError
from tidelog.storage.memory import MemoryStore

KEYS = 12


class Ending(Portions):
    """Portions whose end can be awaited; it breaks off when it has handed out so many."""

    has_end = True
    left: int | None = None

    def open(self, split: str, position: Any) -> SplitReader:
        reader = super().open(split, position)
        read = reader.read

        def counted() -> list[Any] | None:
            records = read()
            if records and self.left is not None:
                self.left -= 1
                if self.left < 0:
                    raise UserFunctionError("the source", found="the break", action="start again")
            return records

        reader.read = counted  # type: ignore[method-assign]
        return reader


class EagerEnding(Eager):
    has_end = True


def splits(name: str, count: int, length: int) -> dict[str, list[Any]]:
    """Records (key, name), each key in all splits."""
    return {
        f"{name}-{s}": [(f"k{(n + s) % KEYS}", f"{name}-{s}-{n}") for n in range(length)]
        for s in range(count)
    }


def pair(record: Any, row: Any) -> tuple[Any, Any]:
    return record[1], row and row[0]


def enriched(records: Source, table: Source, sink: Outside) -> Job:
    job = Job("enriched")
    left = job.source(records, name="records").rebalance().map(lambda r: r, name="pass")
    right = job.source(table, name="table").filter(lambda r: True).key_by(lambda r: r[0])
    left.key_by(lambda r: r[0]).enrich(right, pair, time="processing").sink(sink)
    return job


def check(sink: Outside, records: Portions) -> None:
    """Every record has come once, with the row of its key."""
    assert Counter(sink.records) == Counter((name, key) for key, name in records.records)


@pytest.mark.parametrize("seed", range(30))
def test_every_record_has_its_row_however_fast_either_side_is_read(seed: int) -> None:
    rng, sink = Random(seed), Outside()
    records = Ending(splits("r", 3, 20), rng.randint(1, 9), rng.choice([0.0, 0.1, 1.0]))
    table = Ending(splits("t", 2, KEYS), rng.randint(1, 9), rng.choice([0.0, 0.3, 2.0]))
    with with_workers(rng.choice([1, 1, 2])):
        job = enriched(records, table, sink)
        run(job, MemoryStore(), config(parallelism=rng.randint(1, 3)), seed)
    check(sink, records)


@pytest.mark.parametrize("shapes", [[2, 2], [1, 3, 2], [3, 1]])
def test_a_job_that_breaks_off_while_it_loads_goes_on_loading(shapes: list[int]) -> None:
    sink, store = Outside(), MemoryStore()
    records, table = Ending(splits("r", 3, 20)), Ending(splits("t", 2, KEYS), 1, 0.9)
    for number, parallelism in enumerate(shapes):
        last = number == len(shapes) - 1
        table.left = None if last else 6
        try:
            run(enriched(records, table, sink), store, config(parallelism=parallelism), number)
        except UserFunctionError:
            assert not last and sink.records == []
    check(sink, records)


@one_by_one(mode=["always", "off", "timeout"], parallelism=[2, 1])
def test_a_job_goes_on_from_every_checkpoint(mode: str, parallelism: int) -> None:
    records = EagerEnding(splits("r", 2, 24), 2)
    table = EagerEnding(splits("t", 2, 24), 2)

    def job(sink: Outside, clock: VirtualClock) -> Job:
        job = Job("enriched")
        left = job.source(records, name="records", parallelism=2).key_by(lambda r: r[0])
        right = slowly(job.source(table, name="table", parallelism=2), clock, 0.2)
        both = left.enrich(right.key_by(lambda r: r[0]), pair, time="processing")
        slowly(both, clock, 0.2).sink(sink)
        return job

    settings = pressed(mode, parallelism=parallelism, channel_buffers=2, buffer_records=2)
    sink, store = under_pressure(job, settings)
    check(sink, records)
    taken = checkpoints(store)
    assert any(not outside_as_of(sink, each).records for each in taken), "one while it loads"
    assert mode != "always" or any(map(overtaken, taken))
    for checkpoint in taken:
        check(resumed(job, store, sink, checkpoint, settings), records)


def test_a_job_that_is_stopped_while_it_loads_goes_on_loading() -> None:
    sink, store = Outside(), MemoryStore()
    records, table = Ending(splits("r", 2, 20)), Ending(splits("t", 2, KEYS), 1, 1.5)
    acted_on(enriched(records, table, sink), store, lambda runner: runner.stop("loading"), at=3)
    assert sink.records == []
    run(enriched(records, table, sink), store)
    check(sink, records)


def test_tables_of_tables_are_read_one_after_the_other() -> None:
    sink = Outside()
    records, table, codes = (
        Ending(splits(name, 2, KEYS), 2, pause) for name, pause in (("r", 0), ("t", 0), ("c", 2))
    )
    job = Job("enriched")
    left, middle, last = (
        job.source(source, name=name).key_by(lambda r: r[0])
        for name, source in (("records", records), ("table", table), ("codes", codes))
    )
    coded = middle.enrich(last, lambda r, row: (r[0], row and row[0]), time="processing")
    both = left.enrich(
        coded.key_by(lambda r: r[0]), lambda r, row: (r[1], row and row[1]), time="processing"
    )
    both.sink(sink)
    run(job, MemoryStore(), config(parallelism=2))
    check(sink, records)


@pytest.mark.parametrize("case", ["followed", "itself", "each other"])
def test_a_table_without_an_end_is_not_awaited_and_the_log_says_so(
    case: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    job, sink = Job("enriched"), Outside()
    records, table = Ending(splits("r", 2, 20)), Ending(splits("t", 2, KEYS))
    table.has_end = case != "followed"
    left = job.source(records, name="records").key_by(lambda r: r[0])
    right = left if case == "itself" else job.source(table, name="table").key_by(lambda r: r[0])
    left.enrich(right, pair, time="processing").sink(sink)
    if case == "each other":
        right.enrich(left, pair, time="processing").sink(sink)
    run(job, MemoryStore())
    events = Counter(getattr(record, "event", "") for record in caplog.records)
    assert events["table_without_end"] == 1
    assert {name for name, _ in sink.records} >= {name for _, name in records.records}
