"""A census of a checkpoint: whether exactly the objects are there that its commits need.

Reads the log as docs/internals/format.md describes it, with none of the plug-in's code.
"""

import json
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import google_crc32c

from tests.spark.support.patience import PATIENCE_S

HADOOP_CHECKSUM = re.compile(r"\..*\.crc")
SEGMENT = re.compile(r"([0-9a-f]{8})-.*-[0-9]{8}\.seg")
ROLL_UP = re.compile(r"[0-9]{10}\.json")


@dataclass(frozen=True)
class Census:
    checkpoint: Path
    retained: int
    """The newest batches that must be complete: Spark's minBatchesToRetain."""
    problems: list[str] = field(default_factory=list)

    def take(self) -> list[str]:
        """All that is not as it should be."""
        self._only_known_files()
        segments = {path.name: path.stat().st_size for path in self._files("_tidelog/segments")}
        documents = self._documents()
        named = {name for document in documents for name, _ in document["segments"]}
        last_run = self._last_run()
        for name in sorted(set(segments) - named):
            self._expect(SEGMENT.fullmatch(name) and name.startswith(last_run), f"stray {name}")
        self._commits_are_complete(documents, segments)
        return self.problems

    def _only_known_files(self) -> None:
        for path in self._files("_tidelog"):
            kind = {"segments": SEGMENT, "index": ROLL_UP}.get(path.parent.name)
            self._expect(kind and kind.fullmatch(path.name), f"unknown object {path}")
        for path in self._files("state"):
            self._expect(".changelog" not in path.name, f"a changelog that is a file: {path}")

    def _documents(self) -> list[dict[str, Any]]:
        found = []
        for path in self._commits():
            lines = path.read_text().split("\n")
            if self._expect(len(lines) == 3, f"{path} has no index"):
                found.append(self._body(lines[2], path))
        found += [self._body(path.read_text(), path) for path in self._files("_tidelog/index")]
        return found

    def _body(self, line: str, path: Path) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(line)
        start, end = line.index('{"body":') + len('{"body":'), line.rindex(',"crc32c"')
        found = f"{google_crc32c.value(line[start:end].encode()):08x}"
        self._expect(found == document["crc32c"], f"{path}: checksum {found}")
        body: dict[str, Any] = document["body"]
        return body

    def _commits_are_complete(
        self, documents: list[dict[str, Any]], segments: dict[str, int]
    ) -> None:
        entries: dict[str, list[tuple[str, int, int]]] = {}
        for document in documents:
            for _, _, identity, _, pieces in document["changelogs"]:
                entries[identity] = [
                    (document["segments"][at][0], document["segments"][at][1], offset + length)
                    for at, offset, length in pieces
                ]
        for batch in sorted(self._batches())[-self.retained :]:
            for identity in self._identities(batch):
                self._changelog_is_there(batch, identity, entries, segments)

    def _changelog_is_there(
        self,
        batch: int,
        identity: str,
        entries: dict[str, list[tuple[str, int, int]]],
        segments: dict[str, int],
    ) -> None:
        what = f"changelog {identity} of batch {batch}"
        if not self._expect(identity in entries, f"{what} is in no index"):
            return
        for name, size, end in entries[identity]:
            self._expect(segments.get(name) == size, f"{what}: segment {name} is not {size} bytes")
            self._expect(end <= size, f"{what} lies behind the end of {name}")

    def _batches(self) -> list[int]:
        return [int(path.name) for path in self._commits()]

    def _commits(self) -> list[Path]:
        """Without hidden files: Spark leaves some where a commit has failed."""
        return [path for path in self._files("commits") if path.name.isdecimal()]

    def _identities(self, batch: int) -> list[str]:
        second = (self.checkpoint / "commits" / str(batch)).read_text().split("\n")[1]
        return list(_strings(json.loads(second)["stateUniqueIds"]))

    def _last_run(self) -> str:
        newest = max(self._files("_tidelog/segments"), key=lambda path: path.stat().st_mtime_ns)
        return newest.name.partition("-")[0]

    def _files(self, folder: str) -> list[Path]:
        found = [path for path in (self.checkpoint / folder).rglob("*") if path.is_file()]
        return [path for path in found if not HADOOP_CHECKSUM.fullmatch(path.name)]

    def _expect(self, holds: object, problem: str) -> bool:
        if not holds:
            self.problems.append(problem)
        return bool(holds)


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value
    return [text for part in inner for text in _strings(part)]


def assert_complete(checkpoint: Path, retained: int = 2) -> None:
    """Asserts that the checkpoint holds all its commits need and nothing else.

    House-keeping runs beside the query: it gets some time to end.
    """
    deadline = time.monotonic() + PATIENCE_S
    while problems := _look(checkpoint, retained):
        assert time.monotonic() < deadline, "\n".join(problems)
        time.sleep(0.1)


def _look(checkpoint: Path, retained: int) -> list[str]:
    try:
        return Census(checkpoint, retained).take()
    except FileNotFoundError as gone:
        return [f"{gone}: removed while being counted"]
