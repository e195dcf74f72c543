"""Real tidelog processes: start, watch, kill, read what they left."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support import cli
from tests.support.depth import more_in_depth
from tests.support.output_files import output_lines

ROOT = Path(__file__).parents[2]
GIVE_UP_S = 240


@dataclass
class Run:
    """One job with its directories; `command` is the same for every start."""

    directory: Path
    job: str
    options: tuple[str, ...] = ()
    store: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    slot_names: Callable[[], Iterable[str]] | None = None
    """Names in `checkpoints/`, for stores that are no local directory."""

    def __post_init__(self) -> None:
        self.input = self.directory / "in"
        self.output = self.directory / "out"
        self.released = self.directory / "released"
        self.store = self.store or str(self.directory / "store")
        self.input.mkdir(parents=True, exist_ok=True)

    @property
    def command(self) -> list[str]:
        return [
            *("run", self.job),
            *("--input", str(self.input), "--store", self.store, "--output", str(self.output)),
            *("--work-dir", str(self.directory / "work"), "--checkpoint-interval", "100ms"),
            *("--materialize-interval", "200ms", *self.options),
        ]

    @property
    def environment(self) -> dict[str, str]:
        # A job that is held back before its last lines is idle, and takes checkpoints all the same.
        idle = {"TIDELOG__CHECKPOINT__IDLE_INTERVAL": "0 s"}
        return {**os.environ, **idle, "TIDELOG_TEST_RELEASE": str(self.released), **self.env}

    def start(self, *options: str, **streams: int) -> "subprocess.Popen[str]":
        """A process of the job; its `streams` are pipes, or what is given."""
        return started(*self.command, *options, env=self.environment, **streams)

    def release(self) -> None:
        """Let the job read its last lines."""
        self.released.touch()

    def finish(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Run to the end, which must be a good one."""
        done = self.end(self.start(*options))
        assert done.returncode == 0, done.stderr
        return done

    def finish_here(self, *options: str) -> subprocess.CompletedProcess[str]:
        """The same in this process, which needs no start: for what nobody kills or signals, and
        what forks no workers.
        """
        if "--workers" in self.options:
            return self.finish(*options)
        done = cli.tidelog(*self.command, *options, env=self.environment)
        assert done.exit_code == 0, done.stderr
        return subprocess.CompletedProcess(self.command, 0, done.stdout, done.stderr)

    def end(
        self, process: "subprocess.Popen[str]", patience_s: float = GIVE_UP_S
    ) -> subprocess.CompletedProcess[str]:
        """Wait for the end, whatever it is; raises TimeoutExpired."""
        out, err = process.communicate(timeout=patience_s)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def slots(self) -> int:
        """Slots written so far, those included that were deleted since."""
        if self.slot_names is None:
            return newest_slot(Path(self.store)) + 1
        return max((int(Path(name).stem) + 1 for name in self.slot_names()), default=0)

    def lines(self) -> list[str]:
        """What anyone who reads the output files sees now."""
        return output_lines(self.output)

    def records(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.lines()]

    def counts(self) -> dict[object, object]:
        """What a word count has written; each word is there once."""
        records = self.records()
        counts = {record["word"]: record["count"] for record in records}
        assert len(counts) == len(records)
        return counts


def started(*arguments: str, program: str = "tidelog", **options: Any) -> "subprocess.Popen[str]":
    """A process of a command or another module; its output goes into pipes."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": ROOT, "text": True}
    command = [sys.executable, "-m", program, *arguments]
    return subprocess.Popen(command, **{**pipes, **options})


def tidelog(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    process = started(*arguments, cwd=cwd)
    out, err = process.communicate(timeout=GIVE_UP_S)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def newest_slot(store: Path) -> int:
    """The newest slot of a local store that is there; -1 without any."""
    return max((int(path.stem) for path in store.glob("checkpoints/*.json")), default=-1)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that ended is a zombie for as long as nobody waits for it."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_until(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    """Until it holds; fails when the process ended before."""
    give_up = time.monotonic() + GIVE_UP_S
    while not condition():
        if process.poll() is not None:
            raise AssertionError(f"exit code {process.returncode}: {process.communicate()}")
        assert time.monotonic() < give_up, "the process makes no progress"
        time.sleep(0.05)  # looking takes a server as long as the job does


@contextmanager
def killed_at_last(process: "subprocess.Popen[str]") -> Iterator["subprocess.Popen[str]"]:
    """Kills with SIGKILL, as the kernel does when memory runs out; no process outlives its test."""
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def kill_before_release(run: Run, rng: random.Random, look: Callable[[], object]) -> None:
    """Kill once: some checkpoints after the start, or while it starts up."""
    with killed_at_last(run.start()) as process:
        # A single kill comes when there is something to resume.
        slots = run.slots() + rng.choice(more_in_depth([3, 5], [0, 2, 3, 5]))
        print(f"kill at slot {slots}", end=" ")
        wait_until(lambda: run.slots() >= slots, process)
        pause = rng.uniform(0, 0.4)
        print(f"+ {pause:.3f} s")
        time.sleep(pause)
        look()
    look()


def kill_until_finished(run: Run, rng: random.Random, look: Callable[[], object], most: int) -> int:
    """Start and kill until a start finishes; returns the number of kills."""
    for kills in range(most):
        patience = rng.uniform(0.3, 2.5)
        print(f"released, kill after {patience:.3f} s")
        with killed_at_last(run.start()) as process:
            try:
                done = run.end(process, patience)
            except subprocess.TimeoutExpired:
                look()
            else:
                assert done.returncode == 0, done.stderr
                return kills
        look()
    run.finish_here()
    return most
