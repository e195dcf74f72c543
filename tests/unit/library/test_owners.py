"""A step belongs to the thread or task that began it; what becomes of it otherwise is said at once,
and nobody waits for it."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

import pytest

import tidelog
from tests.support.depth import more_in_depth
from tests.support.pipelines import Outside
from tests.unit.library.conftest import NEVER, OFTEN, STATES, in_threads, opened
from tidelog import (
    CheckpointConfig,
    CheckpointFailedError,
    ConfigError,
    Database,
    JobConfig,
    SinkContext,
    SinkWriter,
    UserFunctionError,
    ValueState,
)
from tidelog.changelog.state_rows import StateRows
from tidelog.library import event_loop
from tidelog.runtime.memory import LEAST_MEMORY


def test_changes_outside_of_blocks_belong_to_the_one_that_first_made_one(url: str) -> None:
    def handler() -> None:
        with pytest.raises(ConfigError, match=r"in thread 'pool_0'.*with db.step"):
            db.key("a").total.set(2)
        with pytest.raises(ConfigError, match="in thread 'MainThread', the program's one loop"):
            db.advance("in", 2)
        with db.step():
            db.key("b").total.set(3)
        raise ZeroDivisionError

    with opened(url) as db, ThreadPoolExecutor(1, thread_name_prefix="pool") as pool:
        db.key("a").total.set(1)
        db.advance("in", 1)
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                pool.submit(handler).result()
        db.checkpoint()
        assert db.position == {"in": 1}
        assert dict(db.scan("total")) == {"a": 1, "b": 3}


def test_a_loop_that_has_ended_leaves_its_place_to_the_next(url: str) -> None:
    def loop() -> None:
        count = db.key("a").total
        count.set((count.get() or 0) + 1)
        db.advance("in", count.get())

    with opened(url) as db:
        for _ in range(3):
            in_threads(loop)
        db.checkpoint()
        assert db.position == {"in": 3}


@contextmanager
def dependency(db: Database) -> Iterator[None]:
    with db.step():
        db.key("a").total.set(2)
        yield


def test_a_block_that_another_thread_leaves_is_an_error_at_once(url: str) -> None:
    db = opened(url)
    db.key("a").total.set(1)
    db.checkpoint()
    block, errors = dependency(db), list[str]()

    def leave() -> None:
        try:
            block.__exit__(None, None, None)
        except ConfigError as error:
            errors.append(str(error))

    block.__enter__()
    thread = threading.Thread(target=leave, name="cleaner")
    thread.start()
    thread.join()
    assert "in thread 'cleaner', where thread 'MainThread' had entered it" in errors[0]
    with pytest.raises(UserFunctionError, match="end of its block in thread 'cleaner'"):
        db.checkpoint()
    with pytest.raises(UserFunctionError):
        db.close()
    with opened(url) as db:
        assert db.key("a").total.get() == 1


async def test_a_block_that_another_task_leaves_is_an_error_at_once(url: str) -> None:
    @asynccontextmanager
    async def fixture() -> AsyncIterator[None]:
        async with db.step():
            db.key("a").total.set(2)
            yield

    with pytest.raises(UserFunctionError, match="end of its block in task 'cleaner'"):
        async with tidelog.open_async(url, STATES, config=NEVER) as db:
            async with db.step():
                db.key("a").total.set(1)
            await db.checkpoint()
            block = fixture()
            entered, done = asyncio.Event(), asyncio.Event()

            async def set_up() -> None:
                await block.__aenter__()
                entered.set()
                await done.wait()

            setting_up = asyncio.create_task(set_up(), name="setup")
            await entered.wait()
            leaving = asyncio.create_task(block.__aexit__(None, None, None), name="cleaner")
            with pytest.raises(ConfigError, match="task 'setup' had entered it"):
                await leaving
            done.set()
            await setting_up
            await db.checkpoint()
    with opened(url) as found:
        assert found.key("a").total.get() == 1


async def test_a_task_that_ends_in_its_step_ends_the_database(url: str) -> None:
    blocks = []

    async def enter() -> None:
        block = db.step()
        blocks.append(block)
        await block.__aenter__()
        db.key("a").total.set(2)

    with pytest.raises(UserFunctionError, match="the end of task 'worker', which has changed"):
        async with tidelog.open_async(url, STATES, config=OFTEN) as db:
            await asyncio.create_task(enter(), name="worker")
            await db.checkpoint()


def test_a_block_that_a_dead_thread_left_open_is_no_other_threads(url: str) -> None:
    blocks = []

    def enter() -> None:
        block = db.step()
        blocks.append(block)
        block.__enter__()

    def step() -> None:
        with db.step():
            db.advance("in", 1)

    with opened(url) as db:
        in_threads(enter)
        for _ in range(5):
            in_threads(step)  # one of them has the number of the first
        db.checkpoint()
        assert db.position == {"in": 1}


def test_a_checkpoint_beside_an_open_step_ends_at_its_timeout_and_names_the_owner(url: str) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def stay() -> None:
        with db.step():
            db.key("a").total.set(1)
            begun.set()
            go_on.wait()

    short = JobConfig(
        checkpoint=CheckpointConfig(interval=1e6, timeout=0.2, tolerable_failures=100)
    )
    with opened(url, short) as db:
        thread = threading.Thread(target=stay, name="the slow one")
        thread.start()
        begun.wait()
        with pytest.raises(CheckpointFailedError, match="open step of thread 'the slow one'"):
            db.checkpoint()
        go_on.set()
        thread.join()
        db.checkpoint()
    with opened(url) as db:
        assert db.key("a").total.get() == 1


class Asking(Outside):
    """Works on the database in tidelog's own thread, as a finalizer does that is run there."""

    def __init__(self, ask: Callable[[], object]) -> None:
        super().__init__()
        self.ask = ask
        self.errors: list[str] = []

    def open(self, context: SinkContext) -> SinkWriter:
        writer = super().open(context)

        def write(records: object) -> None:
            try:
                self.ask()
            except ConfigError as error:
                self.errors.append(str(error))

        writer.write = write  # type: ignore[method-assign]
        return writer


@pytest.mark.parametrize("what", ["get", "set", "checkpoint", "close"])
def test_what_runs_in_tidelogs_own_thread_and_works_on_the_database_is_refused(
    url: str, what: str
) -> None:
    calls: dict[str, Callable[[Database], object]] = {
        "get": lambda db: db.key("a").total.get(),
        "set": lambda db: db.key("a").total.set(1),
        "checkpoint": Database.checkpoint,
        "close": Database.close,
    }
    sink = Asking(lambda: calls[what](db))
    with opened(url, sinks={"out": sink}) as db:
        db.write("out", 1)
        db.checkpoint()
        assert "found a call amid one" in sink.errors[0]
        db.key("a").total.set(7)
        assert db.key("a").total.get() == 7


class Noting(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.noted = threading.Event()
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += record.getMessage()
        self.noted.set()


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Noting]:
    """The log of what takes long."""
    monkeypatch.setattr(event_loop, "_LONG_TURN_S", 0.05)
    noting = Noting()
    event_loop.logger.addHandler(noting)
    yield noting
    event_loop.logger.removeHandler(noting)


def test_what_holds_up_tidelogs_thread_is_named_in_the_log(url: str, log: Noting) -> None:
    with opened(url, sinks={"out": Asking(log.noted.wait)}) as db:
        db.write("out", 1)
        db.checkpoint()
    assert "thread tidelog-loop has stopped the event loop" in log.text
    assert "threading.py:" in log.text


def test_an_operation_that_holds_up_tidelogs_thread_is_named_in_the_log(
    url: str, log: Noting, monkeypatch: pytest.MonkeyPatch
) -> None:
    get = StateRows.get

    def get_slowly(rows: StateRows, key: bytes) -> Any:
        if threading.current_thread() is threading.main_thread():
            log.noted.wait()
        return get(rows, key)

    monkeypatch.setattr(StateRows, "get", get_slowly)
    with opened(url, OFTEN) as db:
        assert db.key("a").total.get() is None
    assert "thread of the program has stopped the event loop" in log.text
    assert "get_slowly" in log.text


def test_a_long_step_takes_no_more_memory_while_a_checkpoint_waits_for_it(url: str) -> None:
    small = JobConfig(memory=LEAST_MEMORY, checkpoint=CheckpointConfig(interval=0.05))
    most = 0
    with opened(url, small, large=ValueState(bytes)) as db:
        with db.step():
            for number in range(15_000):
                db.key(number).large.set(number.to_bytes(4, "big") * (1 << 10))
                most = max(most, db._program.backend.rows_bytes())
        db.checkpoint()
        assert most <= 3 * small.memory_parts.rows
    with opened(url, replace(small, checkpoint=NEVER.checkpoint), large=ValueState(bytes)) as db:
        assert db.key(599).large.get() == (599).to_bytes(4, "big") * (1 << 10)


INTERRUPTED = """
import signal, sys
from tidelog import ValueState, open

def interrupted(after):
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    with open(sys.argv[1], state={"left": ValueState(int), "right": ValueState(int)}) as db:
        number = 0
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, after, 10)
        while True:
            with db.step():
                db.key(number % 9).left.set(number)
                with db.step():
                    db.key(number % 9).right.set(number)
            number += 1

for after in map(float, sys.argv[2:]):
    try:
        interrupted(after)
    except KeyboardInterrupt:
        continue
    raise AssertionError("it went on")
"""


def test_a_program_that_is_interrupted_anywhere_in_its_steps_ends_by_that_alone(url: str) -> None:
    pauses = [str(0.03 + number / 1_000) for number in range(more_in_depth(20, 200))]
    command = [sys.executable, "-c", INTERRUPTED, url, *pauses]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    with opened(url, left=ValueState(int), right=ValueState(int)) as db:
        for key in range(9):
            assert db.key(key).left.get() == db.key(key).right.get()


def forked(call: Callable[[], object]) -> int:
    """What a child ends with that makes this call, within 20 s."""
    child = os.fork()
    if not child:
        try:
            signal.alarm(20)
            call()
            os._exit(17)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_child_that_is_forked_while_others_work_is_refused_at_once(url: str) -> None:
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            with db.step():
                db.key("a").total.set(1)

    def use() -> None:
        for call in (db.key("a").total.get, db.step().__enter__, db.checkpoint):
            with pytest.raises(ConfigError, match="found one that was forked"):
                call()

    with opened(url, OFTEN) as db:
        worker = threading.Thread(target=work)
        worker.start()
        try:
            assert [forked(use) for _ in range(10)] == [17] * 10
        finally:
            done.set()
            worker.join()


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_child_of_a_process_that_had_a_database_open_may_open_one_in_memory_alone(
    url: str,
) -> None:
    with opened(url) as db:
        db.key("a").total.set(1)

    def use() -> None:
        with pytest.raises(ConfigError, match="have the process spawned"):
            opened(url)
        with pytest.raises(ConfigError, match="have the process spawned"):
            tidelog.open(url, checkpoint="latest")
        with opened(f"{url}-of-child", replace(NEVER, table="memory")) as mine:
            mine.key("a").total.set(1)

    assert forked(use) == 17
