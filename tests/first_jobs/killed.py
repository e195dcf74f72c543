"""Programs that are run by the command line and killed with SIGKILL on their way."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path


def start(
    directory: Path, job: str, *options: str, env: Mapping[str, str] | None = None
) -> "subprocess.Popen[str]":
    """Run a job of a program in this directory, with a checkpoint all the time."""
    arguments = ("run", job, "--store", "store", "--quiet", "--checkpoint-interval", "20ms")
    return subprocess.Popen(
        [sys.executable, "-m", "tidelog", *arguments, *options],
        cwd=directory,
        env={**os.environ, **(env or {})},
        stderr=subprocess.PIPE,
        text=True,
    )


def kill_at(process: "subprocess.Popen[str]", checkpoints: Path, slot: int) -> None:
    """Kill with SIGKILL once this slot was written."""
    while last_slot(checkpoints) < slot:
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def last_slot(checkpoints: Path) -> int:
    return max((int(path.stem) for path in checkpoints.glob("*.json")), default=-1)


def finish(process: "subprocess.Popen[str]") -> None:
    """To the end, which must be a good one."""
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
