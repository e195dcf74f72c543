"""Partitions of one application: their number, whose they are, and what waits for what.

That state and positions follow them from process to process is in `test_moving_partitions`.
"""

import logging
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import tidelog
from tests.unit.library.conftest import NEVER
from tidelog import ConfigError, Database, JobConfig, Partitions, ValueState
from tidelog.runtime.memory import LEAST_MEMORY

STATES = {"count": ValueState(int), "bytes": ValueState(bytes)}


def opened(url: str, partitions: int | None = 4, config: JobConfig = NEVER) -> Partitions:
    return tidelog.open_partitions(url, STATES, partitions=partitions, config=config)


def count(app: Partitions, partition: int) -> None:
    app[partition].key("k").count.set(1)
    app[partition].advance("input", 1)


def found(app: Partitions, partition: int) -> tuple[int | None, object]:
    return app[partition].key("k").count.get(), app[partition].position


def test_the_partitions_of_others_are_told_from_ours(url: str) -> None:
    with opened(url) as app:
        database = app.assign([2])[2]
        app[2].advance("input", 1)
        assert app.assign([2]) == {}  # its position is behind: nobody is to read on from there
        assert app[2] is database and len(app) == 1
        with pytest.raises(ConfigError, match=r"partition 1 of .*store; expected one that .*: 2;"):
            app[1]
        for wrong in ([4], [-1], ["0"], [1, "0"]):
            with pytest.raises(ConfigError, match="expected a number from 0 to 3"):
                app.assign(wrong)  # type: ignore[arg-type]
        app.revoke([2, 3])
        with pytest.raises(ConfigError, match=r"partition 2 of .*; found one that was taken"):
            database.key("k").count.set(1)
    with pytest.raises(ConfigError, match="found one that was closed"):
        app.assign([1])


def test_the_number_of_partitions_is_said_once_and_for_ever(url: str) -> None:
    with opened(url, 4), opened(url, None) as again:
        assert again.partitions == 4
    with pytest.raises(ConfigError, match=r"partitions of .*store; expected 4, as at .*found 5"):
        opened(url, 5)
    with pytest.raises(ConfigError, match=r"name of application .*expected 'database'"):
        tidelog.open_partitions(url, STATES, name="other")
    with opened(f"{url}-open", None) as app:
        app.assign([99_999])
        with pytest.raises(ConfigError, match="expected a fixed number"):
            app.partition_of("k")
        with pytest.raises(ConfigError, match="expected a number from 0 to 99999"):
            app.assign([100_000])
    with pytest.raises(ConfigError, match="expected a number that was never said"):
        opened(f"{url}-open", 3)
    for wrong in (0, 100_001, "4", 4.0):
        with pytest.raises(ConfigError, match="partitions=; expected a number from 1 to 100000"):
            opened(f"{url}-new", wrong)  # type: ignore[arg-type]


def test_partitions_are_where_the_application_was_opened_wherever_the_program_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    for log in ("log", None):
        with tidelog.open_partitions("store", STATES, config=NEVER, log_url=log) as app:
            monkeypatch.chdir("other")
            app.assign([1])
            if log is not None:
                count(app, 1)
            assert found(app, 1)[0] == 1
        monkeypatch.chdir(tmp_path)
    assert list((tmp_path / "other").iterdir()) == []


def test_the_partition_of_a_key_never_changes_and_all_have_as_many(url: str) -> None:
    with opened(url, 7) as app:
        keys = ("a", "b", 1, ("a", 2), b"x", None)
        assert list(map(app.partition_of, keys)) == [2, 4, 5, 2, 0, 3]
        shares = Counter(app.partition_of(number) for number in range(7000))
        assert set(shares) == set(range(7)) and max(shares.values()) < 1200


def test_a_revocation_waits_for_the_steps_of_other_threads_and_not_for_ever(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    began, end = threading.Event(), threading.Event()

    def step(app: Partitions) -> None:
        with app[0].step():
            app[0].key("k").count.set(17)
            began.set()
            end.wait()

    with opened(url) as app:
        app.assign([0, 1])
        count(app, 0)
        app.checkpoint()
        thread = threading.Thread(target=step, args=(app,))
        thread.start()
        began.wait()
        with caplog.at_level(logging.WARNING, "tidelog"):
            app.revoke([0], timeout_s=0.01)
        end.set()
        thread.join()
        assert "found none after 0.01 s" in caplog.text
        app.assign([0])
        assert found(app, 0) == (1, {"input": 1})


def test_rows_that_are_only_read_stay_within_the_budget(url: str) -> None:
    rows, value = range(8_000), b"v" * 4_096
    small = replace(NEVER, memory=LEAST_MEMORY)
    with opened(url, config=small) as app:
        app.assign([0])
        for number in rows:
            app[0].key(number).bytes.set(value)
    with opened(url, config=small) as app:
        app.assign([0])
        assert all(app[0].key(number).bytes.get() == value for number in rows)
        while app[0]._program.backend.rows_bytes() > 2 * small.memory_parts.rows:
            pass


def test_steps_in_two_partitions_do_not_wait_for_each_other(url: str) -> None:
    with opened(url) as app:
        app.assign([0, 1])
        in_steps_of_both(app[0], app[1])


def test_steps_in_two_databases_do_not_wait_for_each_other(url: str) -> None:
    with (
        tidelog.open(f"{url}-1", STATES, config=NEVER) as one,
        tidelog.open(f"{url}-2", STATES, config=NEVER) as two,
    ):
        in_steps_of_both(one, two)


def in_steps_of_both(one: Database, two: Database) -> None:
    """Each of two threads has a step open in one database and goes on in the other, while both
    databases wait for the end of all steps.
    """
    begun, go_on = threading.Barrier(3), threading.Event()

    def both(first: Database, second: Database) -> None:
        with first.step():
            first.key("k").count.set(1)
            begun.wait()
            go_on.wait()
            with second.step():
                second.key("k").count.set(2)

    threads = [threading.Thread(target=both, args=each) for each in ((one, two), (two, one))]
    for thread in threads:
        thread.start()
    begun.wait()
    threads += [threading.Thread(target=each.checkpoint) for each in (one, two)]
    for thread in threads[2:]:
        thread.start()
    while any(each._job.program.steps._on_last_step_end is None for each in (one, two)):
        pass
    go_on.set()
    for thread in threads:
        thread.join()


def test_a_partition_that_cannot_be_opened_opens_none(url: str) -> None:
    with opened(url) as app:
        app.assign([1])
        count(app, 1)
        app.revoke([1])
        newest = max(Path(url, "partitions/00001/checkpoints").iterdir())
        intact = newest.read_bytes()
        newest.write_bytes(intact[:-20])
        with pytest.raises(tidelog.CorruptObjectError, match=r"partition 1 of"):
            app.assign([0, 1])
        assert list(app) == []
        newest.write_bytes(intact)
        app.assign([0, 1])
        assert found(app, 1) == (1, {"input": 1})
