"""A standalone cluster of Spark on this machine: one master and workers, each a process.

Invariant: no process outlives the `with` block.
"""

import os
import re
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.spark.support.patience import PATIENCE_S
from tests.spark.support.session import ROOT, SMALL_JVM
from tidelog.spark.plugin.toolchain import find_java, find_spark

_DEPLOY = "org.apache.spark.deploy"
_WORKER_LINE = re.compile(r"Registering worker ")
_MASTER_LINE = re.compile(r"Starting Spark master at (spark://\S+)")


@dataclass
class StandaloneCluster:
    directory: Path
    """Logs and the workers' directories."""
    workers: int = 2
    url: str = field(default="", init=False)
    """Of the master, for `spark.master`."""
    _processes: list["subprocess.Popen[bytes]"] = field(default_factory=list, init=False)

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True)
        try:
            self._start("master", f"{_DEPLOY}.master.Master", "--port", "0")
            self.url = self._await(_MASTER_LINE, 1)[0]
            for number in range(self.workers):
                own = ("--cores", "1", "--memory", "1g", "--work-dir", str(self.directory / "work"))
                self._start(f"worker-{number}", f"{_DEPLOY}.worker.Worker", *own, self.url)
            self._await(_WORKER_LINE, self.workers)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def _start(self, name: str, main: str, *arguments: str) -> None:
        spark = find_spark()
        command = [str(find_java()), "-Xmx256m", *SMALL_JVM.split(), "-cp", spark.classpath]
        command += [main, "--host", "127.0.0.1", "--webui-port", "0", *arguments]
        with self._log(name).open("ab") as log:
            process = subprocess.Popen(
                command,
                env={
                    **os.environ,
                    "SPARK_HOME": str(spark.home),
                    "SPARK_SCALA_VERSION": spark.scala.rpartition(".")[0],
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "PYTHONPATH": str(ROOT),
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._processes.append(process)

    def _await(self, line: re.Pattern[str], times: int) -> list[str]:
        """What the master has said, once it has said it so often."""
        deadline = time.monotonic() + PATIENCE_S
        while len(found := line.findall(self._log("master").read_text())) < times:
            logs = "\n".join(log.read_text()[-2000:] for log in self.directory.glob("*.log"))
            assert time.monotonic() < deadline, f"{line.pattern} not seen:\n{logs}"
            assert all(process.poll() is None for process in self._processes), logs
            time.sleep(0.05)
        return found

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def _stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(timeout=PATIENCE_S)
