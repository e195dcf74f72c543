"""What a program writes to its sinks in a step is committed with the step's checkpoint, once."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.unit.library.conftest import NEVER, OFTEN, Broken, in_threads, opened
from tidelog import (
    CheckpointFailedError,
    ConfigError,
    Database,
    Files,
    JobConfig,
    RestoreError,
    Schedule,
    Sink,
    SinkContext,
    SinkWriter,
    StorageError,
    UserFunctionError,
)


class Outside(Sink):
    """Another system of the program's own, with two-phase commit."""

    def __init__(self) -> None:
        self.prepared: dict[bytes, list[Any]] = {}
        self.committed: list[Any] = []
        self.recovered: list[list[bytes]] = []
        self.refusing: Exception | None = None

    def open(self, context: SinkContext) -> "OutsideWriter":
        return OutsideWriter(self, context)


class OutsideWriter(SinkWriter):
    def __init__(self, outside: Outside, context: SinkContext) -> None:
        self.outside, self.context = outside, context
        self.records: list[Any] = []

    def recover(self, transactions: Sequence[bytes]) -> None:
        self.outside.recovered.append(list(transactions))
        for transaction in transactions:
            self.commit(transaction)
        self.outside.prepared.clear()

    def write(self, records: Sequence[Any]) -> None:
        if "poison" in records:
            raise ValueError("poison")
        self.records += records

    def pre_commit(self, checkpoint: int) -> bytes | None:
        if self.outside.refusing is not None:
            raise self.outside.refusing
        if not self.records:
            return None
        name = f"{self.context.generation}-{checkpoint}".encode()
        self.outside.prepared[name], self.records = self.records, []
        return name

    def commit(self, transaction: bytes) -> None:
        self.outside.committed += self.outside.prepared.pop(transaction, [])


def writing_to(outside: Outside, url: str, config: JobConfig = NEVER) -> Database:
    return opened(url, config, {"out": outside})


def test_output_is_committed_with_the_checkpoint_of_its_step(url: str) -> None:
    outside = Outside()
    with writing_to(outside, url) as db:
        for number in range(5000):
            db.write("out", number)
            db.advance("t", number)
        assert outside.committed == []
        db.checkpoint()
        assert outside.committed == list(range(5000))
        db.write("out", "last")
        db.key("k").total.set(1)
    assert outside.committed[5000:] == ["last"]


def test_output_behind_the_last_checkpoint_is_aborted_when_the_program_breaks_off(url: str) -> None:
    outside = Outside()
    with pytest.raises(Broken), writing_to(outside, url) as db:
        db.write("out", "kept")
        db.checkpoint()
        db.write("out", "gone")
        db.advance("t", 1)
        raise Broken
    assert outside.committed == ["kept"]
    with writing_to(outside, url) as db:
        assert db.position is None
        db.write("out", "new")
    assert outside.committed == ["kept", "new"]
    assert [len(each) for each in outside.recovered] == [0, 1]  # what the checkpoint names


def test_output_position_and_state_agree_at_every_break(url: str) -> None:
    outside = Outside()
    for _ in range(6):
        with pytest.raises(Broken), writing_to(outside, url, OFTEN) as db:
            began = number = (db.position or {"t": 0})["t"]
            assert (db.key("k").total.get() or 0) == began == len(outside.committed)
            while (db.position or {"t": 0})["t"] == began:
                number += 1
                db.write("out", number)
                db.key("k").total.set(number)
                db.advance("t", number)
            db.write("out", "half a step")
            raise Broken
    with writing_to(outside, url) as db:
        assert outside.committed == list(range(1, (db.position or {})["t"] + 1))


def test_threads_write_to_several_sinks(url: str, tmp_path: Path) -> None:
    outside = Outside()

    def write(db: Database, name: str) -> None:
        for number in range(3000):
            with db.step():
                db.write("out", (name, number))
                db.write("files", {"name": name, "number": number})

    sinks = {"out": outside, "files": Files(str(tmp_path / "out"))}
    with opened(url, OFTEN, sinks) as db:
        in_threads(*(partial(write, db, name) for name in "ab"))
    for name in "ab":  # in the order of each thread
        assert [n for each, n in outside.committed if each == name] == list(range(3000))
    lines = [line for p in (tmp_path / "out").glob("part-*") for line in p.open()]
    assert len(lines) == len(set(lines)) == 6000


def test_a_sink_that_refuses_gives_up_checkpoints_and_output_waits(url: str) -> None:
    outside = Outside()
    config = JobConfig(checkpoint=Schedule(interval=0.02, tolerable_failures=2))
    outside.refusing = StorageError("outside", found="a full disk", action="make room")
    refused = pytest.raises(CheckpointFailedError, match="a full disk")
    with refused, writing_to(outside, url, config) as db:
        db.write("out", 1)
        db.checkpoint()
    assert outside.committed == []
    outside.refusing = None
    with writing_to(outside, url) as db:
        db.write("out", 2)
    assert outside.committed == [2]


def test_a_record_that_cannot_be_written_ends_the_database(url: str) -> None:
    with pytest.raises(UserFunctionError, match="poison"), writing_to(Outside(), url) as db:
        db.write("out", "poison")
        db.checkpoint()


def test_a_name_that_is_no_sink_is_refused_and_changes_nothing(url: str) -> None:
    with writing_to(Outside(), url) as db:
        with pytest.raises(ConfigError, match="one of out"):
            db.write("other", 1)
        with pytest.raises(Broken), db.step():
            raise Broken
        db.checkpoint()


def test_a_sink_that_is_left_out_holds_what_was_pre_committed(url: str) -> None:
    with writing_to(Outside(), url) as db:
        db.write("out", 1)
    with pytest.raises(RestoreError, match="operator 'out'"):
        opened(url)
    with writing_to(Outside(), url):
        pass  # nothing was written: no transaction is left
    opened(url).close()
