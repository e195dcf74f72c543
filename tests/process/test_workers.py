"""A job in several processes: whichever of them is killed or stopped, and when, its output is that
of an undisturbed run, and no process outlives it.
"""

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.process import harness
from tests.process.harness import Run, is_alive, killed_at_last, wait_until
from tests.process.test_kill import write_words
from tests.support.depth import more_in_depth

ROUNDS = more_in_depth(5, 100)
SEED = int(os.environ.get("TIDELOG_TEST_SEED", "20260101"))
WAYS = ("worker", "stopped worker", "parent", "all stopped", "forker")
"""What happens: SIGKILL or SIGSTOP of one of the processes; or all stop, the parent is killed, and
the others go on later."""


def descendants(pid: int) -> list[int]:
    """The living processes below one, the one that forks the workers first."""
    found = subprocess.run(
        ["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False
    ).stdout.split()
    return [each for child in map(int, found) for each in (child, *descendants(child))]


def assert_gone(pids: list[int]) -> None:
    """All are gone within a moment."""
    until = time.monotonic() + 10
    while left := list(filter(is_alive, pids)):
        assert time.monotonic() < until, f"processes {left} outlive their job"
        time.sleep(0.05)


def signalled(pids: list[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def harm(way: str, parent: int, below: list[int], rng: random.Random) -> None:
    forker, *workers = below
    match way:
        case "worker":
            signalled([rng.choice(workers)], signal.SIGKILL)
        case "stopped worker":
            signalled([rng.choice(workers)], signal.SIGSTOP)
        case "forker":
            signalled([forker], signal.SIGKILL)
        case "parent":
            signalled([parent], signal.SIGKILL)
        case "all stopped":
            signalled(below, signal.SIGSTOP)
            signalled([parent], signal.SIGKILL)
            time.sleep(rng.uniform(0, 0.5))
            signalled(below, signal.SIGCONT)


def more_slots(run: Run, number: int) -> Callable[[], bool]:
    """Whether so many slots have been written since this call."""
    upto = run.slots() + number
    return lambda: run.slots() >= upto


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks at processes in /proc")
def test_whichever_process_is_killed_or_stopped_every_word_is_counted_right(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    run = Run(tmp_path, "tests.process.jobs:wordcount", ("--worker-timeout", "2s"))
    expected = write_words(run, more_in_depth(700, 2_500), files=5)
    print(f"seed {SEED}")
    for number in range(ROUNDS):
        way, workers = WAYS[number % len(WAYS)], rng.choice((2, 3))
        with killed_at_last(run.start("--workers", str(workers))) as process:
            wait_until(more_slots(run, 3), process)
            below = descendants(process.pid)
            assert len(below) == 1 + workers
            time.sleep(rng.uniform(0, 0.4))
            print(way, "with", workers)
            harm(way, process.pid, below, rng)
            if way in ("worker", "stopped worker"):  # the job goes on by itself
                wait_until(more_slots(run, 3), process)
                assert_gone(below[1:])
                below += descendants(process.pid)
        assert_gone([process.pid, *below])
    run.release()
    run.finish("--workers", "3")
    assert run.counts() == expected
    work = [*(tmp_path / "work").glob("*/*")]
    assert work == [], "directories of the workers are left"


def test_a_job_in_workers_is_stopped_by_a_signal_and_by_a_savepoint(tmp_path: Path) -> None:
    run = Run(tmp_path, "tests.process.jobs:wordcount", ("--workers", "2"))
    expected = write_words(run, 300)
    with killed_at_last(run.start()) as process:
        wait_until(lambda: run.slots() >= 3, process)
        below = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        assert run.end(process).returncode == 130
        assert_gone(below)
    with killed_at_last(run.start()) as process:
        wait_until(more_slots(run, 3), process)
        stopped = harness.tidelog("stop", run.store, "--savepoint", "halt")
        assert stopped.returncode == 0, stopped.stderr
        assert run.end(process).returncode == 0
    halted = run.slots()
    with killed_at_last(run.start("--from", "@halt", "--json")) as process:
        wait_until(more_slots(run, 3), process)
        # A start that this makes necessary goes on from the newest checkpoint, not from @halt.
        signalled(descendants(process.pid)[1:2], signal.SIGKILL)
        wait_until(more_slots(run, 3), process)
        run.release()
        done = run.end(process)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["restored_checkpoint"] > halted
    assert run.counts() == expected


def test_workers_that_stood_still_with_their_parent_go_on(tmp_path: Path) -> None:
    options = ("--workers", "2", "--worker-timeout", "1s")
    run = Run(tmp_path, "tests.process.jobs:wordcount", options)
    expected = write_words(run, 300)
    with killed_at_last(run.start()) as process:
        wait_until(lambda: run.slots() >= 3, process)
        everyone = [process.pid, *descendants(process.pid)]
        signalled(everyone, signal.SIGSTOP)
        time.sleep(2.5)
        signalled(everyone, signal.SIGCONT)
        wait_until(more_slots(run, 3), process)
        assert [process.pid, *descendants(process.pid)] == everyone
        run.release()
        assert run.end(process).returncode == 0
    assert run.counts() == expected


def test_what_a_module_prints_is_printed_once(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(
        "from tidelog import Job, IterableSource, StdoutSink\n"
        "print('a header')\n"
        "job = Job('printed')\n"
        "job.source(IterableSource([1, 2, 3])).rebalance().sink(StdoutSink())\n"
    )
    store = str(tmp_path / "store")
    done = harness.tidelog("run", "jobs.py:job", "--store", store, "--workers", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")) == ["", "1", "2", "3", "a header"]


@pytest.mark.parametrize("sink", ["StdoutSink()", "ForeachSink(print)"])
def test_lines_of_several_workers_stand_whole_in_the_output(tmp_path: Path, sink: str) -> None:
    (tmp_path / "jobs.py").write_text(
        "from tidelog import ForeachSink, Job, IterableSource, StdoutSink\n"
        "job = Job('printed')\n"
        "lines = {letter: [letter * 100] * 20_000 for letter in 'abcdefgh'}\n"
        f"job.source(IterableSource(lines)).sink({sink})\n"
    )
    store = str(tmp_path / "store")
    done = harness.tidelog("run", "jobs.py:job", "--store", store, "--workers", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert Counter(done.stdout.split()) == dict.fromkeys((c * 100 for c in "abcdefgh"), 20_000)


def test_what_workers_print_on_a_terminal_is_not_erased(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(
        "from tidelog import Job, IterableSource, StdoutSink\n"
        "job = Job('printed')\n"
        "job.source(IterableSource(['a line'])).sink(StdoutSink())\n"
    )
    ours, terminal = os.openpty()
    run = ("run", "jobs.py:job", "--store", str(tmp_path / "store"), "--workers", "2")
    process = harness.started(*run, cwd=tmp_path, stdout=terminal, stderr=terminal)
    assert process.wait(harness.GIVE_UP_S) == 0
    shown = os.read(ours, 1 << 16).decode()
    assert "a line" in shown
    assert "\x1b[" not in shown, "a panel moves the cursor"
    os.close(ours)
    os.close(terminal)


def test_a_signal_between_two_starts_ends_the_job_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(
        "from tidelog import Job, IterableSource, StdoutSink\n"
        "def job(arguments):\n"
        "    job = Job('failing')\n"
        "    job.source(IterableSource([0])).map(lambda n: 1 / n).sink(StdoutSink())\n"
        "    return job\n"
    )
    run = Run(tmp_path, f"{tmp_path / 'jobs.py'}:job", ("--workers", "2"))
    with killed_at_last(run.start()) as process:
        assert process.stderr is not None
        assert any("starts again" in line for line in process.stderr)
        process.send_signal(signal.SIGTERM)
        stopped = run.end(process)
    assert stopped.returncode == 130, stopped.stderr
    assert "run the same command to resume" in stopped.stderr


@pytest.mark.parametrize(
    ("ending", "said"),
    [("os._exit(3)", "exit status 3"), ("os.kill(os.getpid(), signal.SIGSEGV)", "signal SIGSEGV")],
)
def test_a_worker_that_ends_by_itself_is_said_to_have_done_so_and_how(
    ending: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "jobs.py").write_text(
        "import os, signal\n"
        "from tidelog import Job, IterableSource, StdoutSink\n"
        "def job(arguments):\n"
        "    job = Job('ending')\n"
        f"    job.source(IterableSource([0])).map(lambda n: {ending}).sink(StdoutSink())\n"
        "    return job\n"
    )
    run = Run(tmp_path, f"{tmp_path / 'jobs.py'}:job", ("--workers", "2", "--restarts", "0"))
    with killed_at_last(run.start()) as process:
        ended = run.end(process)
    assert ended.returncode == 1 and said in ended.stderr
    assert "out of memory" not in ended.stderr


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks at processes in /proc")
def test_without_the_process_that_starts_workers_the_job_does_not_try_to_start_any(
    tmp_path: Path,
) -> None:
    run = Run(tmp_path, "tests.process.jobs:wordcount", ("--workers", "2"))
    write_words(run, 200)
    with killed_at_last(run.start()) as process:
        wait_until(more_slots(run, 2), process)
        signalled(descendants(process.pid)[:1], signal.SIGKILL)
        ended = run.end(process)
    assert ended.returncode == 1 and "which starts the workers" in ended.stderr
    assert "starts again" not in ended.stderr
