"""A step is whole in every checkpoint, whoever else does what: nested, abandoned, refused."""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.unit.library.conftest import NEVER, OFTEN, STATES, in_threads, opened
from tidelog import (
    AsyncDatabase,
    ConfigError,
    Database,
    StateSchemaError,
    UserFunctionError,
    ValueState,
)
from tidelog.changelog.state_rows import StateRows
from tidelog.library.program import Program
from tidelog.runtime.memory import LEAST_MEMORY


def add(db: Database | AsyncDatabase, key: str, amount: int) -> None:
    total = db.key(key).total
    total.set((total.get() or 0) + amount)


def totals(url: str) -> dict[str, Any]:
    """What the newest checkpoint holds."""
    with tidelog.open(url, checkpoint="latest") as view:
        return {**dict(view.scan("total")), "position": view.position}


def test_a_step_within_a_step_is_a_part_of_it(url: str) -> None:
    with opened(url, OFTEN) as db:
        add(db, "audit", 0)
        db.advance("in", 0)
        db.checkpoint()
        before = totals(url)
        with db.step():
            add(db, "from", -100)
            with db.step():
                add(db, "audit", 1)
            db.advance("in", 1)
            time.sleep(0.2)  # a checkpoint wants to begin
            assert totals(url) == before
            add(db, "to", 100)
        db.checkpoint()
        assert totals(url) == {"from": -100, "to": 100, "audit": 1, "position": {"in": 1}}


async def test_a_step_within_a_step_is_a_part_of_it_for_tasks_too(url: str) -> None:
    async with tidelog.open_async(url, STATES, config=OFTEN) as db:
        async with db.step():
            add(db, "audit", 0)
            db.advance("in", 0)
        await db.checkpoint()
        before = totals(url)
        async with db.step():
            add(db, "from", -100)
            async with db.step():
                add(db, "audit", 1)
            db.advance("in", 1)
            await asyncio.sleep(0.2)
            assert totals(url) == before
            add(db, "to", 100)
        await db.checkpoint()
        assert totals(url) == {"from": -100, "to": 100, "audit": 1, "position": {"in": 1}}


def test_no_checkpoint_is_taken_and_nothing_closed_within_a_step(url: str) -> None:
    with opened(url) as db:
        with db.step():
            add(db, "a", 1)
            for call in (db.checkpoint, db.savepoint, db.close):
                with pytest.raises(ConfigError, match="with db"):
                    call()
            add(db, "b", 1)
        db.checkpoint()
        assert totals(url) == {"a": 1, "b": 1, "position": None}


def test_an_inner_step_that_breaks_off_ends_the_database(url: str) -> None:
    db = opened(url)
    with pytest.raises(UserFunctionError, match="ValueError: no"), db, db.step():
        add(db, "a", 1)
        try:
            with db.step():
                add(db, "b", 1)
                raise ValueError("no")
        except ValueError:
            add(db, "c", 1)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("raises", [False, True])
def test_a_thread_that_ends_in_its_step_ends_the_database_at_once(url: str, raises: bool) -> None:
    db, blocks = opened(url, OFTEN), list[object]()
    add(db, "a", 1)
    db.advance("in", 1)
    db.checkpoint()

    def work() -> None:
        step = db.step()
        step.__enter__()
        blocks.append(step)
        add(db, "a", 100)
        if raises:
            raise ZeroDivisionError

    worker = threading.Thread(target=work, name="worker-7")
    worker.start()
    worker.join()
    with pytest.raises(UserFunctionError, match=r"the end of thread 'worker-7'"):
        for _ in range(1000):
            add(db, "b", 1)
            db.advance("in", 2)
            time.sleep(0.01)
    with pytest.raises(UserFunctionError, match="worker-7"):
        db.close()
    assert totals(url) == {"a": 1, "position": {"in": 1}}
    with opened(url, OFTEN) as db:
        assert db.key("a").total.get() == 1


def test_threads_that_end_between_their_steps_end_nothing(url: str) -> None:
    with opened(url, OFTEN) as db:

        def work(number: int) -> None:
            with db.step():
                add(db, f"of {number}", number)

        for number in range(50):  # one after the other: they have one number in turn
            in_threads(partial(work, number))
        db.checkpoint()
    assert totals(url) == {**{f"of {n}": n for n in range(50)}, "position": None}


def step_of_another(db: Database) -> None:
    with db.step():
        add(db, "b", 1)
        db.advance("in", 1)


DEEP: Any = ()
for _ in range(1200):
    DEEP = (DEEP,)

REFUSED: list[tuple[Callable[[Database], object], type[Exception], str]] = [
    (lambda db: db.key("a").total.set("text"), StateSchemaError, "bigint"),
    (lambda db: db.key("a").seen.set("x", "no number"), StateSchemaError, "bigint"),
    (lambda db: db.key("a").seen.set(1, 1), StateSchemaError, "string"),
    (lambda db: db.key("a").seen.delete(1), StateSchemaError, "string"),
    (lambda db: db.key("a").names.append("\ud800"), StateSchemaError, "no Unicode"),
    (lambda db: db.key("a").names.set(["x", 1]), StateSchemaError, "string"),
    (lambda db: db.key([1]), StateSchemaError, "type list"),
    (lambda db: db.key({"a": 1}), StateSchemaError, "type dict"),
    (lambda db: db.key(("a", object())), StateSchemaError, "type object"),
    (lambda db: db.key(DEEP), StateSchemaError, "key, a tuple; .*nested too deep"),
    (lambda db: db.key(1 << 64), StateSchemaError, "64 bits"),
    (lambda db: db.key("\ud800"), StateSchemaError, "no Unicode"),
    (lambda db: db.scan("total", after=[1]), StateSchemaError, "type list"),
    (lambda db: db.advance("t", object()), StateSchemaError, "position; .*builtins.object"),
    (lambda db: db.advance([1], 1), StateSchemaError, "partition .*type list"),
    (lambda db: db.advance(object(), 1), StateSchemaError, "partition an object"),
    (lambda db: db.key("a").absent, AttributeError, "total, seen, names.*'absent'"),
]


@pytest.mark.parametrize(("change", "error", "message"), REFUSED)
def test_a_refused_change_changes_nothing_and_opens_no_step(
    url: str, change: Callable[[Database], object], error: type[Exception], message: str
) -> None:
    with opened(url, OFTEN) as db:
        db.key("a").names.set(["kept"])
        db.key("a").seen.set("x", 1)
        db.checkpoint()
        with pytest.raises(error, match=message):
            change(db)
        with pytest.raises(error), db.step():
            change(db)
        # Nobody waits for this thread: another one begins its step, and checkpoints are taken.
        in_threads(partial(step_of_another, db))
        db.checkpoint()
        assert totals(url) == {"b": 1, "position": {"in": 1}}
        assert (db.key("a").names.get(), db.key("a").seen.items()) == (["kept"], [("x", 1)])


def test_a_program_that_fills_memory_waits_until_there_is_room(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = replace(NEVER, memory=LEAST_MEMORY)
    left, paused = list[int](), Program.paused

    @contextmanager
    def watched(program: Program) -> Iterator[None]:
        full = program.backend.rows_bytes() > small.memory_parts.rows
        with paused(program):
            yield
            if full:
                left.append(program.backend.rows_bytes())

    monkeypatch.setattr(Program, "paused", watched)
    with opened(url, small, large=ValueState(bytes)) as db:
        number = 0
        while not left:
            db.key(number).large.set(number.to_bytes(4, "big") * (1 << 16))
            number += 1
        assert left[0] <= small.memory_parts.rows


PROGRAM = """
import sys, tidelog
from pathlib import Path
from tidelog import ValueState
if sys.argv[1] == "one":
    db = tidelog.open("store", state={"n": ValueState(int)})
else:
    db = tidelog.open_partitions("store", {"n": ValueState(int)}, partitions=4)
    db.assign([0, 1])
print("open", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("which", ["one", "partitions"])
def test_an_interrupted_program_complains_of_nothing_but_that(which: str, tmp_path: Path) -> None:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", PROGRAM, which]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "open\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert "KeyboardInterrupt" in errors
    assert "pending" not in errors and "never awaited" not in errors


AMID: dict[str, Callable[[Database], object]] = {
    "get": lambda db: db.key("a").total.get(),
    "set": lambda db: db.key("a").total.set(2),
    "entries": lambda db: db.key("a").seen.items(),
    "advance": lambda db: db.advance("in", 1),
    "scan": lambda db: list(db.scan("total")),
    "checkpoint": lambda db: db.checkpoint(),
    "close": lambda db: db.close(),
}


@pytest.mark.parametrize("call", AMID.values(), ids=AMID)
def test_a_signal_handler_that_works_on_the_database_amid_an_operation_is_refused(
    url: str, monkeypatch: pytest.MonkeyPatch, call: Callable[[Database], object]
) -> None:
    put = StateRows.put

    def interrupted(rows: StateRows, key: bytes, value: Any) -> None:
        signal.raise_signal(signal.SIGUSR1)
        put(rows, key, value)

    monkeypatch.setattr(StateRows, "put", interrupted)
    db = opened(url)
    before = signal.signal(signal.SIGUSR1, lambda *_: call(db))
    try:
        with pytest.raises(ConfigError, match=r"a call amid one.*set a flag"):
            db.key("a").total.set(1)
    finally:
        signal.signal(signal.SIGUSR1, before)
        monkeypatch.undo()
        db.close()
