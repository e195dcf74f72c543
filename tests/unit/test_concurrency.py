"""Coroutines and threads side by side: bounded, in order, ended when one has failed."""

import asyncio
import gc
import os
import signal
import threading
from concurrent.futures import Future
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any

import pytest

from tidelog import ForeachSink, IterableSource, Job, JobRunner, open_store
from tidelog.concurrency import LiveObjects, SharedTasks, answer_of, in_time, together
from tidelog.effects import ThreadOffload


async def test_results_keep_their_order_and_no_more_than_allowed_run_at_once() -> None:
    running, most = 0, 0

    async def request(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5 - number % 5):
            await asyncio.sleep(0)
        running -= 1
        return number

    found = await together((request(number) for number in range(20)), 4)
    assert found == list(range(20))
    assert most == 4


async def test_when_one_fails_all_others_have_ended_before_its_error_is_raised() -> None:
    begun: list[int] = []
    ended: list[int] = []

    async def request(number: int) -> None:
        begun.append(number)
        try:
            if number == 2:
                raise OSError("gone")
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    with pytest.raises(OSError, match="gone"):
        await together((request(number) for number in range(6)), 3)
    assert len(begun) < 6
    assert sorted(ended) == sorted(begun)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_what_has_not_ended_in_time_is_cancelled_and_has_no_result() -> None:
    ended = asyncio.Event()

    async def long() -> int:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return 0

    async def short(number: int) -> int:
        return number

    async def bad() -> int:
        raise ValueError("bad")

    assert await in_time([short(1), long(), short(3)], 0.01) == [1, None, 3]
    assert ended.is_set()
    assert await in_time([short(1), short(2)], None) == [1, 2]
    assert await in_time([], 0.01) == []
    with pytest.raises(ValueError, match="bad"):
        await in_time([long(), bad()], None)


async def test_a_shared_task_goes_on_for_the_others_when_one_gives_up() -> None:
    tasks, answer = SharedTasks(), asyncio.Event()

    async def work() -> str:
        await answer.wait()
        return "done"

    task = tasks.start(work())
    giving_up, staying = (asyncio.ensure_future(tasks.wait(task)) for _ in range(2))
    await asyncio.sleep(0)
    giving_up.cancel()
    await asyncio.sleep(0)
    answer.set()
    assert await staying == "done"
    assert giving_up.cancelled()


async def test_close_ends_shared_tasks_and_nobody_hears_of_errors_that_nobody_waited_for() -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told))
    tasks = SharedTasks()

    async def fail() -> None:
        raise OSError("gone")

    failing, hanging = tasks.start(fail()), tasks.start(asyncio.Event().wait())
    waiting = asyncio.ensure_future(tasks.wait(failing))
    waiting.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await tasks.close()
    assert failing.done() and hanging.cancelled()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    gc.collect()  # an error that nobody saw is told when its task is freed
    assert complaints == []


@pytest.mark.filterwarnings("error::RuntimeWarning")
async def test_work_that_never_began_is_closed_however_often_the_caller_is_cancelled() -> None:
    work = [asyncio.sleep(60) for _ in range(3)]
    waiting = asyncio.ensure_future(together(work, 1))
    for _ in range(9):
        await asyncio.sleep(0)
        waiting.cancel()
    await asyncio.wait([waiting])
    gc.collect()  # where one was not closed, this is the warning "was never awaited"


async def test_a_stop_iteration_in_a_thread_reaches_the_waiter() -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(ThreadOffload(1).run(next, iter(())), timeout=30)


def test_the_threads_of_a_job_end_when_a_program_has_it_no_more(tmp_path: Path) -> None:
    before = set(threading.enumerate())

    def run() -> set[Thread]:
        job = Job("ends")
        job.source(IterableSource([1, 2, 3], blocking=True)).sink(ForeachSink(lambda rows: None))
        asyncio.run(JobRunner(job, open_store(str(tmp_path / "store"))).run())
        return set(threading.enumerate()) - before

    threads = run()
    assert {thread.name.rstrip("_0123456789") for thread in threads} == {
        "tidelog",
        "tidelog-waiting",
    }
    gc.collect()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()


async def test_what_must_end_ends_before_its_caller_however_often_that_is_cancelled() -> None:
    """As by Ctrl-C while a database is opened, and then by the end of its event loop."""
    offload, free, done = ThreadOffload(1), Event(), Event()
    blocking = asyncio.ensure_future(offload.run(free.wait))
    ending = asyncio.ensure_future(offload.run_to_end(done.set))
    for _ in range(3):
        await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
    free.set()
    await asyncio.wait([blocking, ending])
    assert done.is_set() and ending.cancelled()


def test_an_answer_of_another_thread_is_waited_for_and_no_longer_than_allowed() -> None:
    answer: Future[int] = Future()
    threading.Timer(0.01, answer.set_result, [7]).start()
    assert answer_of(answer, 60, monotonic) == 7
    failed: Future[int] = Future()
    failed.set_exception(ValueError("failed"))
    with pytest.raises(ValueError, match="failed"):
        answer_of(failed, 60, monotonic)
    late: Future[int] = Future()
    with pytest.raises(TimeoutError):
        answer_of(late, 0.01, monotonic)
    assert late.cancelled()


def test_signals_that_do_not_end_the_process_do_not_prolong_a_wait() -> None:
    passed_s, signalled = [0.0], 0

    def now() -> float:
        """A clock that goes on with each look; a signal comes before the next one."""
        nonlocal signalled
        passed_s[0] += 10
        signalled += 1
        # What would go on for ever ends as a failed test.
        assert signalled < 50
        os.kill(os.getpid(), signal.SIGUSR1)
        return passed_s[0]

    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with pytest.raises(TimeoutError):
            answer_of(Future(), 100, now)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert passed_s[0] >= 100


def test_a_signal_to_end_ends_a_wait_that_holds_up_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidelog.concurrency._GRACE_S", 0.01)

    async def wait() -> bool:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, ended.set)
        try:
            threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGTERM]).start()
            with pytest.raises(TimeoutError):
                answer_of(Future(), 3600, monotonic)
            # The event loop gets the signal, too.
            return await asyncio.wait_for(ended.wait(), 60)
        finally:
            loop.remove_signal_handler(signal.SIGTERM)

    assert asyncio.run(wait())


def test_objects_are_looked_through_while_others_come_and_go() -> None:
    class Owned:
        """What can be referred to weakly."""

    first, second, late = Owned(), Owned(), Owned()
    objects = LiveObjects[Owned]()
    objects.add(first)
    objects.add(second)
    seen = []
    for each in objects:
        objects.add(late)
        objects.discard(second)
        seen.append(each)
    assert seen == [first, second]
    seen = each = second = None  # type: ignore[assignment]
    assert list(objects) == [first, late]
    del first
    assert list(objects) == [late]
