"""A cluster of Spark whose two workers are hosts of their own: Spark starts a second attempt at a
slow task only on another host, and all workers of a `local-cluster` are one.

Invariant: nothing of a cluster outlives its `with` block.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.ports import free_port
from tidelog.spark.plugin.toolchain import find_spark

HOSTS = ("127.0.0.2", "127.0.0.3")
_DEPLOY = "org.apache.spark.deploy"


@contextmanager
def two_hosts(directory: Path) -> Iterator[str]:
    """Run the cluster and give its master's URL; the workers' files and logs are in `directory`."""
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as running:

        def run(role: str, host: str, *arguments: str) -> None:
            name = role.rpartition(".")[2].lower()
            log = running.enter_context((directory / f"{name}-{host}.log").open("wb"))
            program = [str(find_spark().home / "bin/spark-class"), f"{_DEPLOY}.{role}"]
            process = subprocess.Popen(
                [*program, "--host", host, "--webui-port", "0", *arguments],
                env={**os.environ, "SPARK_LOCAL_IP": host, "SPARK_DAEMON_MEMORY": "256m"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            running.callback(process.wait)
            running.callback(os.killpg, process.pid, signal.SIGKILL)

        run("master.Master", "127.0.0.1", "--port", str(port))
        for host in HOSTS:
            work = ["--work-dir", str(directory / f"work-{host}")]
            run("worker.Worker", host, "--cores", "1", "--memory", "1g", *work, url)
        yield url
