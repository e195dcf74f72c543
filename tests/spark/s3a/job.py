"""One query over one input directory, run by drivers that a test starts, kills and starts again."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.spark.s3a.query import Parameters

_ROOT = Path(__file__).parents[3]
_WORDS = 50


@dataclass(frozen=True)
class Driver:
    """A running driver, with its JVM."""

    process: "subprocess.Popen[str]"

    def kill(self) -> None:
        """End it at once, as the loss of its machine would."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.communicate()

    def outcome(self) -> "Outcome":
        """Wait for the end."""
        out, err = self.process.communicate(timeout=600)
        return Outcome(self.process.returncode, out, err)


@dataclass(frozen=True)
class Outcome:
    """How a driver ended."""

    code: int
    out: str
    err: str

    def state(self) -> Counter[str]:
        """The state it read; fails with the driver's errors if it did not end well."""
        assert self.code == 0, self.err[-5000:]
        return Counter(json.loads(self.out.splitlines()[-1]))


class Job:
    """Input, checkpoint and settings; `settings` may differ from driver to driver."""

    def __init__(self, checkpoint: str, directory: Path) -> None:
        self.checkpoint = checkpoint
        self._input = directory
        self._files = 0
        self._words: Counter[str] = Counter()

    def add_files(self, count: int) -> None:
        """More input; each file is a batch of 100 words."""
        for _ in range(count):
            lines = [f"word-{(self._files * 7 + n * n) % _WORDS}" for n in range(100)]
            self._words.update(lines)
            path = self._input / f"{self._files:04d}.txt"
            path.write_text("".join(f"{line}\n" for line in lines))
            os.utime(path, (self._files, self._files))  # the order in which they are taken
            self._files += 1

    @property
    def batch_count(self) -> Counter[str]:
        """What a batch computation over the whole input gives."""
        return Counter(self._words)

    def start(self, settings: dict[str, str], *, run: bool = True) -> Driver:
        """A driver that takes all input there is; without `run` it only reads the state."""
        parameters = Parameters(self.checkpoint, str(self._input), run, settings)
        command = [sys.executable, "-m", "tests.spark.s3a.query", json.dumps(asdict(parameters))]
        process = subprocess.Popen(
            command,
            cwd=_ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        return Driver(process)
