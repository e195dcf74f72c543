"""Positions of a query's sources in terms of the job's sources, for the way back.

Invariants: a position says exactly what the committed batches have read; where Spark's log does not
tell it, as of a file that changed after it was read, there is an error.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

from tidelog.connectors.files.compressed import MEMBERS, CompressedText
from tidelog.connectors.files.line_reader import LineFiles
from tidelog.connectors.files.lines import TextFileSource
from tidelog.connectors.files.source import InputFile, InputFiles
from tidelog.connectors.kafka.reading.source import KafkaSource
from tidelog.errors import CorruptObjectError, StorageError
from tidelog.runtime.graph import Job
from tidelog.runtime.source import Source
from tidelog.runtime.subtasks.vertices import class_names
from tidelog.spark.checkpoint.checkpoint import SOURCES
from tidelog.spark.checkpoint.commits import Offsets
from tidelog.storage.document import FORMAT_VERSION
from tidelog.storage.port import ObjectStore

SOURCE: Final = "tidelog_source"
SPLITS: Final = "splits"
"""Fields of an offset of a source of one's own: its name in the job, and by split what a manifest
has, in base 64, and how many records the query has read."""
_CHUNK_BYTES: Final = 1 << 20
_COMPACT: Final = ".compact"


class SourceDescription(msgspec.Struct, frozen=True, omit_defaults=True):
    """A source of a job, as far as its positions need it."""

    source: str
    types: tuple[str, ...]
    """The class of the source and its base classes, as a manifest stores them."""
    topics: tuple[str, ...] = ()
    path: str = ""
    """Of files."""
    include: str = "*"


class QuerySources(msgspec.Struct, frozen=True):
    """The sources of a query that is a job."""

    job: str
    key_groups: int
    sources: tuple[SourceDescription, ...] = ()
    frames: tuple[str, ...] = ()
    """The sources that data frames of the user's own stand for: how far those are read is in no
    terms of the job."""
    format: int = FORMAT_VERSION


def described_sources(job: Job, key_groups: int) -> QuerySources:
    """What the checkpoint of a query keeps of its job's sources."""
    sources: list[SourceDescription] = []
    for node in job.nodes:
        source = node.source
        if isinstance(source, KafkaSource):
            topics = tuple(source.topics)
            sources.append(SourceDescription(node.id, class_names(source, Source), topics))
        elif isinstance(source, InputFiles):
            path, include = str(source.root.absolute()), source.include
            sources.append(
                SourceDescription(node.id, class_names(source, Source), (), path, include)
            )
        elif source is not None:
            sources.append(SourceDescription(node.id, class_names(source, Source)))
    return QuerySources(job.name, key_groups, tuple(sources))


async def read_splits(
    store: ObjectStore, offsets: Offsets, source: SourceDescription, before: Mapping[str, bytes]
) -> dict[str, bytes]:
    """What a manifest has of each split of a source; `before` is what it had when the query began.

    Raises CorruptObjectError for a damaged log of Spark's, and StorageError for a changed file.
    """
    if source.topics:
        return {**before, **dict(_partitions(offsets, source, before))}
    if not source.path:
        offset = offset_of(offsets, source.source)
        if offset is None:
            raise CorruptObjectError(
                f"offsets of the last batch of {store.url}",
                expected="how far each source is read",
                found=f"no positions of source {source.source!r}",
                action="bring the object back from a backup of the query's checkpoint",
            )
        return stored_splits(offset)
    files = TextFileSource(source.path, source.include)
    splits = dict(before)
    for number, entry in offsets.file_logs.items():
        async for record in _log(store, number, entry):
            file = Path(unquote(urlsplit(record["path"]).path))
            split = files.split_of(file)
            if split is None or _ended(before.get(split)):
                continue
            position = None
            if LineFiles.__name__ in source.types:
                position = _end_of(file, record["timestamp"])
            splits[split] = msgspec.msgpack.encode([True, position])
    return splits


def offset_of(offsets: Offsets, source: str) -> Mapping[str, Any] | None:
    """What the offsets of a batch have of a source of one's own; None: nothing."""
    for document in offsets.documents:
        if isinstance(document, dict) and document.get(SOURCE) == source:
            return document
    return None


def offset_at(source: str, splits: Mapping[str, bytes]) -> dict[str, Any]:
    """The offset at which a query goes on with what a manifest has of each split."""
    parts = {split: (b64encode(data).decode(), 0) for split, data in sorted(splits.items())}
    return {SOURCE: source, SPLITS: parts}


def stored_splits(offset: Mapping[str, Any]) -> dict[str, bytes]:
    """What a manifest has of each split at an offset."""
    return {split: b64decode(data) for split, (data, _) in offset[SPLITS].items()}


def _partitions(
    offsets: Offsets, source: SourceDescription, before: Mapping[str, bytes]
) -> Iterator[tuple[str, bytes]]:
    for document in offsets.documents:
        if not isinstance(document, dict) or not set(document) & set(source.topics):
            continue
        for topic, partitions in document.items():
            for number, offset in partitions.items():
                split = f"{topic}/{number}"
                entry = msgspec.msgpack.decode(before[split]) if split in before else [False, None]
                # After it: the latest event time that was known there.
                yield split, msgspec.msgpack.encode([False, offset, *entry[2:]])


def _ended(data: bytes | None) -> bool:
    return data is not None and bool(msgspec.msgpack.decode(data)[0])


async def _log(store: ObjectStore, number: int, last: int) -> Any:
    """The files that a source of Spark's has read up to an entry of its log."""
    prefix = f"{SOURCES}{number}/"
    compact, entries = -1, list[int]()
    async for info in store.list(prefix):
        name = info.name.removeprefix(prefix)
        entry = name.removesuffix(_COMPACT)
        if not entry.isdecimal() or int(entry) > last:
            continue
        if name.endswith(_COMPACT):
            compact = max(compact, int(entry))
        else:
            entries.append(int(entry))
    names = [f"{compact}{_COMPACT}"] if compact >= 0 else []
    names += [str(entry) for entry in sorted(entries) if entry > compact]
    for name in names:
        data = await store.get(prefix + name)
        for record in _records(data, prefix + name):
            yield record


def _records(data: bytes, name: str) -> Iterator[dict[str, Any]]:
    version, *lines = data.decode(errors="replace").splitlines()
    try:
        if version.strip() != "v1":
            raise ValueError(version[:20])
        for line in lines:
            record = json.loads(line)
            if not isinstance(record["path"], str):
                raise ValueError(line[:80])
            yield record
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptObjectError(
            f"object {name}",
            expected="Spark's list of the files that were read",
            found=str(error),
            action="bring the object back from a backup of the query's checkpoint",
        ) from error


def _end_of(file: Path, modified_ms: int) -> list[Any]:
    """The position at the end of a file that Spark has read whole."""
    input_file = InputFile(file)
    try:
        now = input_file.identity
        if int(now.st_mtime * 1000) != modified_ms:
            raise StorageError(
                f"input file {file}",
                expected=f"the file as Spark listed it, last modified at {modified_ms} ms",
                found=f"one that was modified at {int(now.st_mtime * 1000)} ms: how much of it was "
                "read is not known",
                action="put the file back as it was; what comes later belongs into other files",
                retry_safe=False,
            )
        member = MEMBERS.get(file.suffix.lower())
        if member is None:
            return [now.st_size, None, input_file.mark(now.st_size)]
        text, offset = CompressedText(input_file, None, member), 0
        while data := text.read(offset, _CHUNK_BYTES):
            offset += len(data)
        return text.position(offset)
    finally:
        input_file.close()
