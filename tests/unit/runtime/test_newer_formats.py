"""Going back to an older release: what a newer one has stored is refused by name, before the start
takes the store over or writes anything.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.pipelines import (
    Outside,
    Portions,
    Within,
    acted_on,
    config,
    effects,
    run,
    word_count,
    words,
)
from tests.support.watching import document_of
from tidelog import Job, JobRunner, RestoreFrom
from tidelog.checkpoint.formats import FORMATS
from tidelog.errors import FormatVersionError
from tidelog.runtime.source import SplitReader
from tidelog.storage.memory import MemoryStore


class Words(Portions):
    """A source whose second release has positions that the first one cannot read."""

    def __init__(self, release: int) -> None:
        super().__init__(words().splits)
        self.position_format = release

    def open(self, split: str, position: Any) -> SplitReader:
        if self.position_format == 1:
            return super().open(split, position)
        offset = position["offset"] if isinstance(position, dict) else position
        return _Described(super().open(split, offset))


class _Described(Within):
    @property
    def position(self) -> Any:  # type: ignore[override]  # read only here
        return {"offset": self.inner.position}


class Committing(Outside):
    def __init__(self, release: int) -> None:
        super().__init__()
        self.transaction_format = release


def job(source: int = 1, sink: int = 1) -> Job:
    return word_count(Words(source), Committing(sink))


@pytest.mark.parametrize(
    ("newer", "named"),
    [
        ({"source": 2}, r"'source'; expected positions of format 1; found positions of format 2"),
        ({"sink": 2}, r"expected transactions of format 1; found transactions of format 2"),
    ],
)
async def test_the_newer_release_goes_on_when_the_older_one_is_refused(
    newer: dict[str, int], named: str
) -> None:
    store, environment = MemoryStore(), effects()
    first = JobRunner(job(**newer), store, config(), environment)
    running = asyncio.ensure_future(first.run())
    await environment.clock.sleep(2.2)
    before = set(store._objects)
    second = JobRunner(job(), store, config(), environment)
    with pytest.raises(FormatVersionError, match=named):
        await second.run()
    assert second.generation is None
    assert set(store._objects) == before
    assert (await running).checkpoints > 2


@contextmanager
def a_release_that_stores(kind: str, format: int, patch: pytest.MonkeyPatch) -> Iterator[None]:
    with patch.context() as changed:
        changed.setitem(FORMATS, kind, format)
        yield


def crashed(store: MemoryStore, **options: Any) -> None:
    acted_on(job(), store, at=3.2, crash=True, **options)


@pytest.mark.parametrize("kind", [*FORMATS, "something that only newer releases have"])
def test_everything_that_a_checkpoint_refers_to_has_a_format_that_is_checked_first(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    with a_release_that_stores(kind, 2, monkeypatch):
        crashed(store)
    before = dict(store._objects)
    with pytest.raises(FormatVersionError, match=f"found {kind} of format 2"):
        run(job(), store)
    assert store._objects == before
    [problem] = {each.action for each in document_of(before).problems}
    assert "release that wrote it" in problem
    with a_release_that_stores(kind, 2, monkeypatch):
        assert run(job(), store).checkpoints > 0


def test_a_savepoint_of_the_older_release_is_the_way_back(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()

    async def stop(runner: JobRunner) -> None:
        await runner.stop("before")

    acted_on(job(), store, stop, at=2.2)
    with a_release_that_stores("values", 2, monkeypatch):
        crashed(store)
    with pytest.raises(FormatVersionError):
        run(job(), store)
    sink = Committing(1)
    back = word_count(Words(1), sink)
    acted_on(back, store, restore_from=RestoreFrom("before"))
    assert run(back, store).already_complete
    everything = MemoryStore()
    undisturbed = Committing(1)
    run(word_count(Words(1), undisturbed), everything)
    assert sorted(sink.records) == sorted(undisturbed.records)
