"""A view shows what a checkpoint holds, of programs and of jobs, and changes nothing."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.support import jobs
from tests.support.cli import tidelog as command
from tests.unit.library.conftest import NEVER, STATES, opened
from tidelog import (
    CheckpointConfig,
    ForeachSink,
    IterableSource,
    Job,
    JobConfig,
    StatefulProcessor,
    StatefulProcessorHandle,
    UploadConfig,
    ValueState,
    open_store,
)
from tidelog.errors import ConfigError, ObjectNotFoundError, StateSchemaError
from tidelog.storage import object_names
from tidelog.storage.errors import object_not_found
from tidelog.storage.local import LocalStore


def objects(url: str) -> dict[str, bytes]:
    return dict(jobs.contents(open_store(url)))


def write(url: str, total: int) -> None:
    with opened(url) as db:
        db.key("a").total.set(total)
        db.key("a").seen.set("x", 5)
        db.key(("b", 1)).names.append("first")
        db.advance("t", total)
        db.savepoint(f"total-{total}")


def test_it_shows_a_savepoint_a_slot_or_the_newest_checkpoint(url: str) -> None:
    write(url, 1)
    write(url, 2)
    with tidelog.open(url, checkpoint="total-1") as view:
        assert (view.position, view.key("a").total.get()) == ({"t": 1}, 1)
        assert view.key("a").seen.items() == [("x", 5)]
        assert view.key("a").seen.get("x") == 5
        assert view.key(("b", 1)).names.get() == ["first"]
        assert view.key("absent").total.get() is None
        assert list(view.scan("total")) == [("a", 1)]
        assert view.states == ["total", "seen", "names"]
        slot = view.checkpoint.slot
    for checkpoint, total in ((slot, 1), (str(slot), 1), ("latest", 2)):
        with tidelog.open(url, checkpoint=checkpoint) as view:
            assert view.key("a").total.get() == total


def test_the_positions_of_a_program_without_states_are_shown(url: str) -> None:
    with tidelog.open(url, {}) as db:
        db.advance("t", 7)
    with tidelog.open(url, checkpoint="latest") as view:
        assert (view.position, view.states) == ({"t": 7}, [])


@dataclass
class Place:
    offset: int


def test_states_are_read_by_programs_without_the_class_of_a_position(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(url) as db:
        db.key("a").total.set(1)
        db.advance("t", Place(1))
    monkeypatch.delattr(f"{__name__}.Place")
    with tidelog.open(url, checkpoint="latest") as view:
        assert view.key("a").total.get() == 1
        with pytest.raises(StateSchemaError, match=r"stored position.*Place"):
            _ = view.position


def test_it_writes_nothing_and_leaves_nothing(url: str, tmp_path: Path) -> None:
    write(url, 1)
    before, here = objects(url), JobConfig(work_dir=tmp_path / "work")
    with tidelog.open(url, checkpoint="latest", config=here) as view:
        assert list((tmp_path / "work").glob("*/*"))
        assert view.key("a").total.get() == 1
        for change in (
            lambda: view.key("a").total.set(2),
            view.key("a").total.delete,
            lambda: view.key("a").seen.set("x", 1),
            lambda: view.key("a").names.append("x"),
        ):
            with pytest.raises(ConfigError, match="found a change"):
                change()
        assert view.key("a").total.get() == 1
    assert objects(url) == before
    assert not list((tmp_path / "work").glob("*/*"))
    view.close()
    for read in (view.key("a").total.get, lambda: list(view.scan("total"))):
        with pytest.raises(ConfigError, match="one that is open"):
            read()
    with pytest.raises(ObjectNotFoundError):
        tidelog.open(str(tmp_path / "nothing"), checkpoint="latest", config=here)
    assert not (tmp_path / "nothing").exists()
    with pytest.raises(
        ConfigError, match=r"checkpoint 99 .*expected one of \d+.*found none of that"
    ):
        tidelog.open(url, checkpoint="99", config=here)
    assert not list((tmp_path / "work").glob("*/*"))


def test_it_fences_nobody_and_stays_what_it_is(url: str) -> None:
    config = JobConfig(checkpoint=CheckpointConfig(interval=0.01), retain=3)
    with opened(url, config) as db:
        for number in range(500):
            db.key(number).total.set(0)
        db.advance("t", 0)
        db.savepoint("zero")
        done, rounds = threading.Event(), 0

        def count() -> None:
            nonlocal rounds
            while not done.is_set():
                rounds += 1
                with db.step():
                    for number in range(500):
                        db.key(number).total.set(rounds)
                db.checkpoint()

        counting = threading.Thread(target=count)
        counting.start()
        try:
            with tidelog.open(url, checkpoint="zero") as zero:
                for _ in range(5):
                    with tidelog.open(url, checkpoint="latest") as view:
                        found = {value for _, value in view.scan("total")}
                        assert len(found) == 1  # whole steps
                    assert [value for _, value in zero.scan("total")] == [0] * 500
        finally:
            done.set()
            counting.join()
        db.key("x").total.set(1)


def test_a_checkpoint_that_is_dropped_while_it_is_read_is_passed_over(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(url, JobConfig(upload=UploadConfig(inline_bytes=0))) as db:
        total = db.key("a").total
        total.set(1)
        db.checkpoint()
        get = LocalStore.get

        async def dropped(
            store: LocalStore, name: str, start: int = 0, length: int | None = None
        ) -> bytes:
            if name.startswith(object_names.SEGMENTS) and total.get() == 1:
                with db.step():
                    total.set(2)
                db.checkpoint()
                raise object_not_found(store.url, name)
            return await get(store, name, start, length)

        monkeypatch.setattr(LocalStore, "get", dropped)
        with tidelog.open(url, checkpoint="latest") as view:
            assert view.key("a").total.get() == 2


def test_an_encrypted_store_with_its_log_elsewhere_is_opened_alike(
    url: str, tmp_path: Path
) -> None:
    assert command("key", "new", str(tmp_path / "key")).exit_code == 0
    config = JobConfig(checkpoint=NEVER.checkpoint, encryption_key=str(tmp_path / "key"))
    with tidelog.open(url, STATES, config=config, log_url=str(tmp_path / "log")) as db:
        db.key("a").total.set(7)
    with tidelog.open(url, checkpoint="latest", config=config) as view:
        assert view.key("a").total.get() == 7
    with pytest.raises(ConfigError, match="key"):
        tidelog.open(url, checkpoint="latest")


def test_states_of_a_job_are_read_by_their_names(url: str) -> None:
    """A view shows the keys of all subtasks; a value of several columns is a tuple."""
    # Virtual time goes on while a thread writes: the store does so inline.
    store = open_store(url, effects=jobs.virtual_effects())
    jobs.run_until_break(store, jobs.every_kind(breaks_at=200))
    with tidelog.open(url, checkpoint="latest") as view:
        assert view.position is None
        assert view.states == ["count", "seen", "history", "letters"]
        counts = dict(view.scan("count"))
        assert counts.keys() == set(jobs.WORDS[:40])
        for word, count in counts.items():
            assert view.key(word).count.get() == count
            assert view.key(word).history.get() == [(len(word), word)] * count
            assert view.key(word).letters.get("w") == (count, 0.5)
            assert set(view.key(word).letters.items()) == {(x, (count, 0.5)) for x in word}
        assert dict(view.scan("history")) == {w: [(len(w), w)] * n for w, n in counts.items()}
        assert ("word-1", "w", (counts["word-1"], 0.5)) in list(view.scan("letters"))


class Quoting(StatefulProcessor):
    names = ("good", "_key", "__init__", "a\0b")

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.states = [handle.getValueState(name, "n int") for name in self.names]
        self.sizes = handle.getMapState("sizes", "`user-id` string", "`größe` int, n int")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        for state in self.states:
            state.update((1,))
        self.sizes.updateValue(("x",), (2, len(list(rows))))
        yield key


def test_states_and_columns_of_a_job_may_have_names_that_are_no_attributes(url: str) -> None:
    job = Job("quoting")
    keyed = job.source(IterableSource(["a", "a"])).key_by(str)
    keyed.transform_with_state(Quoting).sink(ForeachSink(lambda _: None))
    jobs.run(open_store(url), job)
    with tidelog.open(url, checkpoint="latest") as view:
        assert view.key("a").sizes.items() == [("x", (2, 2))]
        assert view.key("a").good.get() == 1
        assert [list(view.scan(name)) for name in Quoting.names] == [[("a", 1)]] * 4


def test_declared_states_are_checked_and_needed_by_nobody(url: str) -> None:
    write(url, 1)
    declared = {"total": ValueState(int), "new": ValueState(str)}
    with tidelog.open(url, declared, checkpoint="latest") as view:
        assert (view.key("a").total.get(), view.key("a").new.get()) == (1, None)
        with pytest.raises(AttributeError, match="total, new"):
            _ = view.key("a").seen
    with pytest.raises(StateSchemaError, match="total"):
        tidelog.open(url, {"total": ValueState(str)}, checkpoint="latest")
    with pytest.raises(ConfigError, match='checkpoint="latest"'):
        tidelog.open(url)  # type: ignore[call-overload]


def test_the_values_of_an_aggregate_are_read(url: str) -> None:
    jobs.run_until_break(open_store(url), jobs.word_count(breaks_at=200))
    with tidelog.open(url, checkpoint="latest", operator="count") as view:
        found = dict(view.scan("aggregate"))
        assert found.keys() == set(jobs.WORDS[:40])
        assert all(view.key(word).aggregate.get() == count for word, count in found.items())
    with pytest.raises(ConfigError, match="one of count"):
        tidelog.open(url, checkpoint="latest", operator="source")
