"""Spark applications as processes of their own, to be killed in whole or in part.

Invariant: nothing of an application outlives its `with` block.
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.spark.support import faults, stores
from tests.spark.support.place import Place
from tests.spark.support.session import PATIENCE_S, ROOT, SOURCES
from tests.spark.support.zoo.query import Topics

EXECUTOR = b"CoarseGrainedExecutorBackend"
DRIVER = b"org.apache.spark.deploy.SparkSubmit"
LOCAL = "local[2]"
CLUSTER = "local-cluster[2,1,1024]"


def settings(control: Path, spark_home: Path | None = None, **options: str | int) -> dict[str, str]:
    """Settings for an application with the chosen store that obeys the rules in `control`."""
    store = stores.store_settings(spark_home=spark_home, **options)
    faulty = faults.settings(control, store.get("spark.jars", ""), spark_home)
    return {**store, **stores.EAGER, **stores.INTERPRETED, **faulty}


@dataclass(frozen=True)
class Job:
    """One query of an application."""

    place: Place
    query: str
    scheme: str = "file"
    follow: bool = False
    """Never ends by itself: waits for more input."""
    topics: Topics | None = None
    """Where the input is, if not in files of the place."""
    checkpoint: str | None = None
    """Where the checkpoint is, if not at the place."""

    @property
    def request(self) -> dict[str, object]:
        return {
            "root": str(self.place.root),
            "query": self.query,
            "checkpoint": self.checkpoint or f"{self.scheme}://{self.place.checkpoint}",
            "follow": self.follow,
            "topics": self.topics and asdict(self.topics),
        }


@dataclass
class Application:
    """Runs queries of the zoo, one after the other, until their input is read."""

    jobs: tuple[Job, ...]
    settings: dict[str, str]
    master: str = LOCAL
    python: str = sys.executable
    log_name: str = "application.log"
    module: str = "tests.spark.support.program"
    """The program; it is given the jobs and settings as JSON."""
    extra: dict[str, object] = field(default_factory=dict)
    """What else such a program is given."""
    process: "subprocess.Popen[bytes] | None" = field(default=None, init=False)

    @property
    def place(self) -> Place:
        """Of its first query."""
        return self.jobs[0].place

    def __enter__(self) -> Self:
        self.place.root.mkdir(parents=True, exist_ok=True)
        self.process = subprocess.Popen(
            [self.python, "-m", *self.arguments()],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": SOURCES, "SPARK_LOCAL_IP": "127.0.0.1"},
            stdin=subprocess.DEVNULL,
            stdout=self._log_file.open("ab"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        if error is not None:
            error.add_note(f"log of the application:\n{self.log()[-6000:]}")

    def arguments(self) -> list[str]:
        """The program as a module, and what it is given."""
        request = {
            "jobs": [job.request for job in self.jobs],
            "settings": self.all_settings(),
            "master": self.master,
            **self.extra,
        }
        return [self.module, json.dumps(request)]

    def finish(self) -> None:
        """Waits until the application has read all input and has ended well."""
        code = self._running.wait(timeout=PATIENCE_S)
        assert code == 0, f"the application ended with {code}:\n{self.log()[-6000:]}"

    def fails(self) -> str:
        """Waits until the application has ended because its query failed; why it did."""
        code = self._running.wait(timeout=PATIENCE_S)
        assert code == 1, f"the application ended with {code}:\n{self.log()[-6000:]}"
        return self.log()

    def kill(self) -> None:
        """`kill -9` of everything: what is left if the machine is lost."""
        with suppress(ProcessLookupError):
            os.killpg(self._running.pid, signal.SIGKILL)
        self._running.wait()

    def kill_driver(self) -> None:
        """`kill -9` of the driver; executors see that it is gone."""
        for pid in self._members(DRIVER):
            with suppress(ProcessLookupError):  # what starts the driver has its name, too
                os.kill(pid, signal.SIGKILL)
        self._running.kill()
        self._running.wait()

    def executors(self) -> dict[str, int]:
        """The process ids of the executors' JVMs by executor id."""
        found = {}
        for pid in self._members(EXECUTOR):
            with suppress(OSError, ValueError, IndexError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                found[words[words.index(b"--executor-id") + 1].decode()] = pid
        return found

    def await_batches(self, number: int) -> None:
        """Waits until so many batches are committed since the checkpoint began."""
        deadline = time.monotonic() + PATIENCE_S
        while not (done := self.place.committed()) or done[-1] + 1 < number:
            assert self._running.poll() is None, f"it has ended:\n{self.log()[-6000:]}"
            assert time.monotonic() < deadline, f"stuck at batches {done}:\n{self.log()[-6000:]}"
            time.sleep(0.01)

    def await_file(self, file: Path) -> None:
        """Waits until a file is there."""
        deadline = time.monotonic() + PATIENCE_S
        while not file.exists():
            assert self._running.poll() is None, f"it has ended:\n{self.log()[-6000:]}"
            assert time.monotonic() < deadline, f"no {file}:\n{self.log()[-6000:]}"
            time.sleep(0.01)

    def await_executors(self, number: int = 2) -> dict[str, int]:
        """Waits until so many executors are there; their process ids by executor id."""
        deadline = time.monotonic() + PATIENCE_S
        while len(found := self.executors()) < number:
            assert self._running.poll() is None, f"it has ended:\n{self.log()[-6000:]}"
            assert time.monotonic() < deadline, f"only executors {found}"
            time.sleep(0.05)
        return found

    def log(self) -> str:
        return self._log_file.read_text(errors="replace")

    def all_settings(self) -> dict[str, str]:
        """The settings of every application of the tests, and those given to this one."""
        local = self.place.root / "local"
        return {
            "spark.local.dir": str(local),
            "spark.sql.warehouse.dir": str(local / "warehouse"),
            "spark.deploy.maxExecutorRetries": "-1",
            "spark.task.maxFailures": "20",
            **self.settings,
        }

    def _members(self, word: bytes) -> list[int]:
        """Processes of this application with `word` in their command line."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                fields = (process / "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) == self._running.pid:
                    command = (process / "cmdline").read_bytes()
                    found += [int(process.name)] if word in command else []
        return found

    @property
    def _running(self) -> "subprocess.Popen[bytes]":
        assert self.process is not None, "used outside of its with block"
        return self.process

    @property
    def _log_file(self) -> Path:
        return self.place.root / self.log_name
