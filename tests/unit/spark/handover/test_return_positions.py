"""What a query has read is what its job would have read."""

import asyncio
import gzip
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.pipelines import effects
from tidelog import IterableSource, Job, JsonLinesSource, StdoutSink
from tidelog.errors import CorruptObjectError, StorageError
from tidelog.runtime.source import Source
from tidelog.spark.checkpoint.commits import Offsets
from tidelog.spark.handover.sources import (
    SourceDescription,
    described_sources,
    offset_at,
    read_splits,
)
from tidelog.storage.local import LocalStore

NEW_LINES = b'{"n": 3}\n'


def encoded(ended: bool, position: Any = None, *latest: int) -> bytes:
    return msgspec.msgpack.encode([ended, position, *latest])


def splits(
    directory: Path, description: SourceDescription, offsets: Offsets, before: dict[str, bytes]
) -> dict[str, Any]:
    store = LocalStore(directory, effects())
    found = asyncio.run(read_splits(store, offsets, description, before))
    return {split: msgspec.msgpack.decode(data) for split, data in found.items()}


def test_offsets_of_the_topics_of_a_source_are_its_positions(tmp_path: Path) -> None:
    topics = SourceDescription("orders", ("KafkaSource",), ("t.x",))
    documents = ({"logOffset": 3}, {"other": {"0": 5}}, {"t.x": {"0": 33, "2": 7}})
    before = {"t.x/0": encoded(False, 20, 99), "t.x/1": encoded(False, 4)}
    found = splits(tmp_path, topics, Offsets({}, {}, documents), before)
    assert found == {"t.x/0": [False, 33, 99], "t.x/1": [False, 4], "t.x/2": [False, 7]}


def spark_log(directory: Path, entries: dict[str, list[Path]]) -> None:
    """The log of a source of files, as Spark writes it."""
    log = directory / "sources/0"
    log.mkdir(parents=True)
    for name, files in entries.items():
        records = [
            {"path": file.as_uri(), "timestamp": int(file.stat().st_mtime * 1000), "batchId": 0}
            for file in files
        ]
        text = "".join(f"{json.dumps(record)}\n" for record in records)
        (log / name).write_text(f"v1\n{text}")


def described(source: Source) -> SourceDescription:
    job = Job("described")
    job.source(source).sink(StdoutSink())
    (description,) = described_sources(job, 128).sources
    return description


def resumed(source: JsonLinesSource, split: str, position: Any) -> list[int]:
    """What a source reads of a split from a position on."""
    reader = source.open(split, position)
    rows: list[Any] = []
    for _ in range(3):
        rows += reader.read() or []
    reader.close()
    return [row.n for row in rows]


def test_files_that_spark_has_read_are_read_to_their_end(tmp_path: Path) -> None:
    files = tmp_path / "in"
    (files / "deep").mkdir(parents=True)
    names = ["deep/a b.jsonl", "b.jsonl.gz", "ended.jsonl", "c.txt", "later.jsonl"]
    for name in names:
        text = b'{"n": 1}\n{"n": 2}\n'
        (files / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    paths = [files / name for name in names]
    entries = {"2.compact": paths[:3], "3": paths[3:4], "4": paths[4:], "1": paths[:1]}
    spark_log(tmp_path, entries)
    source = JsonLinesSource(files, "*.jsonl*", follow=True)
    before = {"ended.jsonl": encoded(True, "as it was"), "not-there.jsonl": encoded(False)}
    found = splits(tmp_path, described(source), Offsets({}, {0: 3}), before)
    assert found.keys() == {"deep/a b.jsonl", "b.jsonl.gz", "ended.jsonl", "not-there.jsonl"}
    assert found["ended.jsonl"] == [True, "as it was"]
    for split in ("deep/a b.jsonl", "b.jsonl.gz"):
        ended, position = found[split]
        assert ended
        assert resumed(source, split, position) == []
    with (files / "deep/a b.jsonl").open("ab") as file:
        file.write(NEW_LINES)
    assert resumed(source, "deep/a b.jsonl", found["deep/a b.jsonl"][1]) == [3]


def test_a_file_that_has_changed_since_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "in/a.jsonl"
    file.parent.mkdir()
    file.write_bytes(b'{"n": 1}\n')
    spark_log(tmp_path, {"0": [file]})
    file.write_bytes(b'{"n": 1}\n{"n": 2}\n')
    os.utime(file, (1, 1))
    description = described(JsonLinesSource(file.parent))
    with pytest.raises(StorageError, match="how much of it was read is not known"):
        splits(tmp_path, description, Offsets({}, {0: 0}), {})


def test_a_damaged_log_of_sparks_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "sources/0").mkdir(parents=True)
    (tmp_path / "sources/0/0").write_text('v1\n{"path": ')
    description = described(JsonLinesSource(tmp_path))
    with pytest.raises(CorruptObjectError, match="object sources/0/0"):
        splits(tmp_path, description, Offsets({}, {0: 0}), {})


def test_the_way_back_of_a_source_of_ones_own_is_what_its_offset_has(tmp_path: Path) -> None:
    description = described(IterableSource([1, 2]))
    assert description.types == ("IterableSource",)
    stored = {"records": msgspec.msgpack.encode([False, 2])}
    offsets = Offsets({}, {}, ({"t": {"0": 5}}, offset_at("source", stored)))
    assert splits(tmp_path, description, offsets, {}) == {"records": [False, 2]}
    with pytest.raises(CorruptObjectError, match="no positions of source 'source'"):
        splits(tmp_path, description, Offsets({}, {}), {})
