"""What a program writes to its sinks in a step is committed with the step's checkpoint, once."""

from functools import partial
from pathlib import Path

import pytest

from tests.support.output_files import output_lines
from tests.support.pipelines import Outside
from tests.unit.library.conftest import NEVER, OFTEN, Broken, in_threads, opened
from tidelog import CheckpointConfig, Database, FileSink, JobConfig, SinkContext, SinkWriter
from tidelog.errors import CheckpointFailedError, RestoreError, StorageError
from tidelog.ids import CheckpointId


class Refusing(Outside):
    """Another system of the program's own, which takes nothing at first."""

    refusing = True

    def open(self, context: SinkContext) -> SinkWriter:
        writer = super().open(context)
        pre_commit = writer.pre_commit

        def pre_commit_or_not(checkpoint: CheckpointId) -> bytes | None:
            if self.refusing:
                raise StorageError("outside", found="a full disk", action="make room")
            return pre_commit(checkpoint)

        writer.pre_commit = pre_commit_or_not  # type: ignore[method-assign]
        return writer


def writing_to(outside: Outside, url: str, config: JobConfig = NEVER) -> Database:
    return opened(url, config, {"out": outside})


def test_output_is_committed_with_the_checkpoint_of_its_step(url: str) -> None:
    outside = Outside()
    with writing_to(outside, url) as db:
        for number in range(5000):
            db.write("out", number)
            db.advance("t", number)
        assert outside.records == []
        db.checkpoint()
        assert outside.records == list(range(5000))
        db.write("out", "last")
        db.key("k").total.set(1)
    assert outside.records[5000:] == ["last"]


def test_output_position_and_state_agree_at_every_break(url: str) -> None:
    outside = Outside()
    for _ in range(6):
        with pytest.raises(Broken), writing_to(outside, url, OFTEN) as db:
            began = number = (db.position or {"t": 0})["t"]
            assert (db.key("k").total.get() or 0) == began == len(outside.records)
            while (db.position or {"t": 0})["t"] == began:  # until a checkpoint is durable
                number += 1
                db.write("out", number)
                db.key("k").total.set(number)
                db.advance("t", number)
            db.write("out", "half a step")
            db.key("k").total.set(-1)
            raise Broken
    with writing_to(outside, url) as db:
        assert outside.records == list(range(1, (db.position or {})["t"] + 1))


def test_threads_write_to_several_sinks(url: str, tmp_path: Path) -> None:
    outside = Outside()

    def write(db: Database, name: str) -> None:
        for number in range(3000):
            with db.step():
                db.write("out", (name, number))
                db.write("files", {"name": name, "number": number})

    sinks = {"out": outside, "files": FileSink(str(tmp_path / "out"))}
    with opened(url, OFTEN, sinks) as db:
        in_threads(*(partial(write, db, name) for name in "ab"))
    for name in "ab":  # in the order of each thread
        assert [n for each, n in outside.records if each == name] == list(range(3000))
    lines = output_lines(tmp_path / "out")
    assert len(lines) == len(set(lines)) == 6000


def test_a_sink_that_refuses_gives_up_checkpoints_and_output_waits(url: str) -> None:
    outside = Refusing()
    config = JobConfig(checkpoint=CheckpointConfig(interval=0.02, tolerable_failures=2))
    refused = pytest.raises(CheckpointFailedError, match="a full disk")
    with refused, writing_to(outside, url, config) as db:
        db.write("out", 1)
        db.checkpoint()
    assert outside.records == []
    outside.refusing = False
    with writing_to(outside, url) as db:
        db.write("out", 2)
    assert outside.records == [2]


def test_a_sink_that_is_left_out_holds_what_was_pre_committed(url: str) -> None:
    outside = Outside()
    with writing_to(outside, url) as db:
        db.write("out", 1)
    with pytest.raises(RestoreError, match="operator 'out'"):
        opened(url)
    with writing_to(outside, url):
        pass  # nothing was written: no transaction is left
    opened(url).close()
