"""A job that moves to another store with its output: the store it leaves writes nothing more."""

import asyncio
from collections.abc import Sequence

import pytest

from tests.support.pipelines import config, effects
from tests.unit.connectors.sinks.job import copying
from tests.unit.connectors.sinks.outputs import KINDS, Output, output
from tests.unit.connectors.sinks.test_held_starts import NUMBERS, Process, killed_behind
from tidelog import JobRunner, RestoreFrom, SinkContext
from tidelog.catalog.clone import Clone
from tidelog.catalog.locate import parse_checkpoint
from tidelog.errors import FencedError
from tidelog.ids import Generation
from tidelog.storage.memory import MemoryStore

ALL = [n for (n,) in NUMBERS]


def killed(out: Output, store: MemoryStore) -> None:
    """A job that has pre-committed what no checkpoint of its own has committed."""
    process = killed_behind(Process(out, store, 1), 4)
    assert 0 < len(out.shown()) < len(ALL)
    process.discard()


def start(out: Output, store: MemoryStore, seed: int, origin: RestoreFrom | None = None) -> None:
    job, settings = copying(NUMBERS, out.sink()), config(parallelism=1)
    runner = JobRunner(job, store, settings, effects(seed), restore_from=origin)
    asyncio.run(runner.run())


def check_fenced(out: Output, store: MemoryStore, seeds: Sequence[int]) -> None:
    """However often a job that was forgotten starts its old store."""
    for seed in seeds:
        with pytest.raises(FencedError, match="the newest"):
            start(out, store, seed)
    assert sorted(out.shown()) == ALL


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_clone_that_keeps_the_output_the_old_store_is_fenced(
    kind: str, request: pytest.FixtureRequest
) -> None:
    out, old, new = output(kind, request), MemoryStore("memory://old"), MemoryStore("memory://new")
    killed(out, old)
    asyncio.run(Clone(old, new, effects(), keep_transactions=True).run(None))
    start(out, new, 5)
    check_fenced(out, old, (6, 7, 8))
    start(out, new, 9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_goes_on_with_its_output_from_a_checkpoint_of_another_store(
    kind: str, request: pytest.FixtureRequest
) -> None:
    out, old, new = output(kind, request), MemoryStore("memory://old"), MemoryStore("memory://new")
    killed(out, old)
    start(out, new, 5, RestoreFrom(None, old, keep_output=True))
    check_fenced(out, old, (6, 7))


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_goes_on_with_its_output_from_an_older_checkpoint_than_the_newest(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """What was committed since comes again; nothing is lost, and nothing is fenced."""
    out, old, new = output(kind, request), MemoryStore("memory://old"), MemoryStore("memory://new")
    process = killed_behind(Process(out, old, 1, retain=10), 7)
    process.discard()
    start(out, new, 5, RestoreFrom(parse_checkpoint("3"), old, keep_output=True))
    assert set(out.shown()) == set(ALL) and len(out.shown()) > len(ALL)
    with pytest.raises(FencedError, match="the newest"):
        start(out, old, 6)


def opened_by(out: Output, generation: int, attempt: str) -> None:
    context = SinkContext("numbers", "sink", 0, 1, Generation(generation), attempt)
    writer = out.sink().open(context)
    try:
        writer.recover([])
    finally:
        writer.close()


@pytest.mark.parametrize("kind", KINDS)
def test_of_two_stores_with_the_same_generation_the_first_one_writes(
    kind: str, request: pytest.FixtureRequest
) -> None:
    out = output(kind, request)

    def opened(attempt: str, generation: int = 4) -> None:
        opened_by(out, generation, attempt)

    opened("a")
    opened("a")
    with pytest.raises(FencedError, match=r"start 4-b.*found start 4-a"):
        opened("b")
    opened("c", 5)
    with pytest.raises(FencedError, match=r"start 4-a.*found start 5-c"):
        opened("a")
