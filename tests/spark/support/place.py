"""Where a query of a test lives: its input files, its checkpoint, what it has written.

Invariants: the n-th file of a source is its n-th batch (Spark orders files by their modification
time, and these have one each); the rows of a batch are written whole, and a batch that runs again
replaces its rows, so the rows read are those of the last run of every batch.

Imported by the applications that tests start with other interpreters too.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FIRST_FILE_S = 1_700_000_000

Row = dict[str, Any]


@dataclass(frozen=True)
class Place:
    root: Path
    input_root: Path | None = None
    """Where the input is, if it is another place's: a copied checkpoint names its files."""

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @property
    def written(self) -> Path:
        return self.root / "out"

    def source(self, name: str) -> Path:
        directory = (self.input_root or self.root) / "in" / name
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def add(self, source: str, records: Iterable[Row]) -> None:
        """The next batch of a source."""
        directory = self.source(source)
        number = sum(1 for _ in directory.glob("[!.]*"))
        unseen = directory / f".{number:05d}"
        unseen.write_text("".join(f"{json.dumps(record)}\n" for record in records))
        os.utime(unseen, (FIRST_FILE_S + number, FIRST_FILE_S + number))
        unseen.replace(directory / f"{number:05d}.json")

    def write(self, batch: int, rows: list[Row]) -> None:
        self.written.mkdir(parents=True, exist_ok=True)
        unseen = self.written / f".{batch:06d}.{os.getpid()}"
        unseen.write_text(json.dumps(rows, default=str))
        unseen.replace(self.written / f"{batch:06d}.json")

    def rows(self) -> list[Row]:
        """All rows of the query, in the order of its batches."""
        files = sorted(self.written.glob("[!.]*.json"))
        return [row for file in files for row in json.loads(file.read_text())]

    def committed(self) -> list[int]:
        """The batches whose commit is in the checkpoint."""
        return sorted(int(file.name) for file in (self.checkpoint / "commits").glob("[0-9]*"))
