"""One of several processes that share an application: counts words of the partitions it is given.

Commands come as lines of JSON on standard input, `[number, verb, partitions]`; each is answered
with its number. What the worker finds out by itself is `["fenced", partition]`.
"""

import json
import os
import select
import sys
import time
from pathlib import Path
from typing import BinaryIO

import tidelog
from tidelog import (
    CheckpointConfig,
    FencedError,
    JobConfig,
    MaterializeConfig,
    Partitions,
    ValueState,
)

STATES = {"count": ValueState(int)}
_LINES = 3
"""Lines of a partition in a row."""


def main(url: str, directory: str, released: str, partitions: str) -> None:
    """Work until told to stop."""
    config = JobConfig(
        checkpoint=CheckpointConfig(interval=0.1), materialize=MaterializeConfig(interval=0.5)
    )
    with tidelog.open_partitions(url, STATES, partitions=int(partitions), config=config) as app:
        worker = Worker(app, Path(directory), Path(released))
        while worker.obeys():
            worker.reads()
            time.sleep(0.005)  # so that there is something left to read at the last action


class Worker:
    """Reads the partitions that the coordinator gives it."""

    def __init__(self, app: Partitions, directory: Path, released: Path) -> None:
        self.app = app
        self.directory = directory
        self.released = released
        self.inputs: dict[int, BinaryIO] = {}
        self.heard = b""

    def obeys(self) -> bool:
        """Carry out the commands that have come; False after the last one."""
        while select.select([sys.stdin], [], [], 0 if self.inputs else 0.01)[0]:
            if not (data := os.read(sys.stdin.fileno(), 65_536)):
                return False
            *lines, self.heard = (self.heard + data).split(b"\n")
            for line in lines:
                number, verb, partitions = json.loads(line)
                getattr(self, verb)(partitions)
                say([number])
                if verb == "finish":
                    return False
        return True

    def assign(self, partitions: list[int]) -> None:
        for partition, db in self.app.assign(partitions).items():
            file = (self.directory / f"{partition}.txt").open("rb")
            file.seek((db.position or {}).get("input", 0))
            self.inputs[partition] = file

    def revoke(self, partitions: list[int]) -> None:
        self.forget(partitions)
        self.app.revoke(partitions)

    def lose(self, partitions: list[int]) -> None:
        self.forget(partitions)
        self.app.lose(partitions)

    def finish(self, partitions: list[int]) -> None:
        """Read them to their ends."""
        self.assign(partitions)
        for partition in partitions:
            while self.read(partition):
                pass
        self.app.checkpoint()

    def forget(self, partitions: list[int]) -> None:
        for partition in partitions:
            if partition in self.inputs:
                self.inputs.pop(partition).close()

    def reads(self) -> None:
        """Some lines of each partition, but not the last ones before they are released."""
        for partition, file in list(self.inputs.items()):
            try:
                for _ in range(_LINES):
                    left = os.fstat(file.fileno()).st_size - file.tell()
                    if left < 200 and not self.released.exists():
                        break
                    self.read(partition)
            except FencedError as error:
                assert f"partition {partition} of" in str(error)
                self.lose([partition])
                say(["fenced", partition])

    def read(self, partition: int) -> bool:
        """Count the words of one line; False at the end."""
        file, db = self.inputs[partition], self.app[partition]
        line = file.readline()
        for word in line.decode().split():
            count = db.key(word).count
            count.set((count.get() or 0) + 1)
        db.advance("input", file.tell())
        return line != b""


def say(what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
