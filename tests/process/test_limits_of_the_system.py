"""What the system refuses is told with what to do; an interrupt ends the command at any moment."""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.depth import more_in_depth

PROGRAM = """
import time

from tidelog import Callback, Job, Replayable


def slowly(n):
    time.sleep(0.001)
    return n


def job():
    job = Job("counting")
    numbers = job.source(Replayable(range(20_000))).map(slowly)
    numbers.key_by(lambda n: n % 100).aggregate(lambda n: 1, lambda a, b: a + b).sink(
        Callback(lambda n: None)
    )
    return job
"""


@pytest.fixture(autouse=True)
def program(tmp_path: Path) -> None:
    (tmp_path / "counting.py").write_text(PROGRAM)


def command(tmp_path: Path, *options: str, files: int | None = None) -> "subprocess.Popen[str]":
    def limited() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(files, 24), files))

    return subprocess.Popen(
        [sys.executable, "-m", "tidelog", "run", "counting:job", *options],
        cwd=tmp_path,
        env=os.environ | {"COLUMNS": "500"},
        preexec_fn=limited,  # noqa: PLW1509  # between fork and exec it only makes system calls
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def processor_seconds(pid: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_too_few_open_files_are_told_with_the_limit_and_what_is_needed(tmp_path: Path) -> None:
    process = command(tmp_path, "--store", "store", "--parallelism", "8", files=30)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "open files" in errors and "ulimit -n" in errors and "for each subtask" in errors


@pytest.mark.parametrize("tenths", more_in_depth([1, 3, 6, 10], range(21)))
def test_an_interrupt_ends_a_command_with_130_at_any_moment(tenths: int, tmp_path: Path) -> None:
    process = command(tmp_path, "--store", "store")
    # By its own processor time: on a busy machine Python itself may not have begun by then.
    while processor_seconds(process.pid) < 0.06 + tenths / 20:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    # Python may end itself by the signal, where it came within an import: 130 in a shell too.
    assert process.returncode in (130, -signal.SIGINT), errors
    assert "Traceback" not in errors and "Aborted" not in errors
