"""Where a job reads and writes: files, topics or a table."""

import json
from collections import Counter
from typing import Any

import msgspec

from tests.spark.job import jobs
from tests.spark.support.place import Place
from tests.support import postgres
from tests.support.kafka import Topics
from tests.support.output_files import output_lines

PARTS = 3
Part = dict[str, jobs.Records]
"""Records by source."""


def parts() -> list[Part]:
    """The input of all jobs, also with the fields that the examples read."""
    sources = jobs.inputs(PARTS)
    return [
        {name: [_event(row) for row in rows[number]] for name, rows in sources.items()}
        for number in range(PARTS)
    ]


def _event(row: dict[str, Any]) -> dict[str, Any]:
    name, time_ms = row["k"] + row["tag"], jobs.START_MS + 3 * (row["t"] - jobs.START_MS)
    return {**row, "user": name, "device": name, "time_ms": time_ms, "value": row["v"]}


def complete(rows: list[Any]) -> Counter[str]:
    """Rows as a multiset, but for those that the last record has made."""
    return Counter(repr(row) for row in rows if not str(row[0]).startswith(jobs.END))


class Files:
    """Directories of files in, a file for a part, and files out."""

    options: tuple[str, ...] = ("--files-per-batch", "1")
    """With which a batch has a part of the input."""

    def __init__(self, place: Place, sources: tuple[str, ...]) -> None:
        self.place = place
        self._sources = sources

    def add(self, part: Part) -> int:
        """Let a part of the input appear; returns the number of its records."""
        for name in self._sources:
            self.place.add(name, part[name])
        return sum(len(part[name]) for name in self._sources)

    def own(self, output: str) -> tuple[str, ...]:
        """What the job is given besides directories, to write where `output` says."""
        return ()

    def rows(self, output: str) -> list[Any]:
        """What is there, by value; of a directory that is not there, nothing."""
        lines = output_lines(self.place.root / output)
        return [tuple(msgspec.json.decode(line).values()) for line in lines]


class Topic(Files):
    """A topic in, of which a partition is far ahead of the other one, and another one out."""

    options = ("--messages-per-batch", "120")

    def __init__(self, place: Place, topics: Topics) -> None:
        super().__init__(place, ("source",))
        self._topics = topics
        self._source = topics.new(2)
        self._targets: dict[str, str] = {}

    def add(self, part: Part) -> int:
        rows = part["source"]
        last = [row for row in rows if row["k"] == jobs.END]
        third = len(rows) // 3
        partitions = ([*rows[:third], *last], rows[third:])
        for number, of_partition in enumerate(partitions):
            self._topics.write(self._source, map(json.dumps, of_partition), partition=number)
        return sum(map(len, partitions))

    def own(self, output: str) -> tuple[str, ...]:
        if output not in self._targets:
            self._targets[output] = self._topics.new()
        return self._topics.bootstrap, self._source, self._targets[output]

    def rows(self, output: str) -> list[Any]:
        messages = self._topics.read_committed(self._targets[output])
        return [msgspec.json.decode(message.value()) for message in messages]


class Table(Files):
    """Files in, and a table out."""

    def __init__(self, place: Place, server: postgres.Server) -> None:
        super().__init__(place, ("source",))
        self._server = server
        self._databases: dict[str, str] = {}

    def own(self, output: str) -> tuple[str, ...]:
        if output not in self._databases:
            self._databases[output] = self._server.database()
        return (self._databases[output],)

    def rows(self, output: str) -> list[Any]:
        return postgres.query(self._databases[output], "SELECT k, start_ms, n FROM counts")
