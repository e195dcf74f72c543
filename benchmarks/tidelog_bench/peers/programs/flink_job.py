"""A running word count of Flink: its settings, its SQL, and what its REST interface tells.

Invariant: the measured job and the one that checks it differ in the sink's connector alone, so
Flink gives their operators the same ids and the second restores what the first has stored.
"""

import json
import socket
import urllib.request
from pathlib import Path
from typing import Any, Final

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

BLACKHOLE: Final = "'connector' = 'blackhole'"
PRINTED: Final = "count"
"""Begins each line that the sink of the check prints."""
PRINT: Final = f"'connector' = 'print', 'print-identifier' = '{PRINTED}'"
_COUNT: Final = "INSERT INTO counts SELECT word, COUNT(*) AS n FROM words GROUP BY word"
_RUNNING: Final = ("INITIALIZING", "CREATED", "RUNNING")


def settings(directory: Path, checkpoint_s: float, port: int) -> dict[str, str]:
    """One slot; RocksDB with the changelog; checkpoints and changelog in local directories.

    Mini-batches are off, as Flink has them by default; single runs with uniform words did not
    favour them.
    """
    durable = directory / "durable"
    return {
        "io.tmp.dirs": str(directory / "local"),
        "parallelism.default": "1",
        "restart-strategy.type": "none",
        "state.backend.type": "rocksdb",
        "state.changelog.enabled": "true",
        "state.changelog.storage": "filesystem",
        "dstl.dfs.base-path": (durable / "changelog").as_uri(),
        "execution.checkpointing.dir": (durable / "checkpoints").as_uri(),
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.interval": f"{round(checkpoint_s * 1000)} ms",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "taskmanager.memory.managed.size": "512m",
        "metrics.fetcher.update-interval": "100",
        "rest.address": "localhost",
        "rest.port": str(port),
        "rest.bind-port": str(port),
    }


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return int(listener.getsockname()[1])


class FlinkJob:
    """The word count over a directory of files, on a cluster inside the JVM of this process."""

    def __init__(
        self, source: Path, directory: Path, checkpoint_s: float, sink: str, restore: Path | None
    ) -> None:
        port = free_port()
        self._rest = f"http://localhost:{port}"
        configuration = Configuration()
        chosen = settings(directory, checkpoint_s, port)
        if restore is not None:
            chosen["execution.state-recovery.path"] = restore.as_uri()
            # With the changelog on, Flink restores in no other mode.
            chosen["execution.state-recovery.claim-mode"] = "CLAIM"
        for key, value in chosen.items():
            configuration.set_string(key, value)
        environment = TableEnvironment.create(
            EnvironmentSettings.new_instance()
            .in_streaming_mode()
            .with_configuration(configuration)
            .build()
        )
        environment.execute_sql(
            "CREATE TABLE words (word STRING) WITH ('connector' = 'filesystem', 'format' = 'raw', "
            f"'path' = '{source.as_uri()}', 'source.monitor-interval' = '250 ms')"
        )
        environment.execute_sql(
            "CREATE TABLE counts (word STRING, n BIGINT, PRIMARY KEY (word) NOT ENFORCED) "
            f"WITH ({sink})"
        )
        self._client: Any = environment.execute_sql(_COUNT).get_job_client()
        self.id = str(self._client.get_job_id())

    def position(self) -> int:
        """Words that the source has read; raises RuntimeError when the job runs no more."""
        told = self._get("")
        if told["state"] not in _RUNNING:
            reason = self._get("/exceptions")["exceptionHistory"]["entries"]
            raise RuntimeError(f"the job is {told['state']}: {json.dumps(reason)[:2000]}")
        for vertex in told["vertices"]:
            if vertex["name"].startswith("Source"):
                return int(vertex["metrics"]["read-records"])
        return 0

    def checkpoints(self) -> int:
        """How many have completed."""
        return int(self._get("/checkpoints")["counts"]["completed"])

    def cancel(self) -> None:
        """End the job; its last checkpoint stays."""
        self._client.cancel().result()

    def _get(self, what: str) -> Any:
        with urllib.request.urlopen(f"{self._rest}/jobs/{self.id}{what}", timeout=30) as answer:
            return json.loads(answer.read())
