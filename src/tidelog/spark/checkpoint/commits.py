"""The files of a batch: `offsets/N`, and `commits/N`, which ends with the batch's index and, where
it is small, the segment with its changelogs.

Invariants: Spark's lines are never changed, only what follows them; a damaged index line leaves
Spark's part usable.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import msgspec

from tidelog.errors import CorruptObjectError, FormatVersionError, TidelogError
from tidelog.spark.format.damage import damaged
from tidelog.spark.format.index import IndexDocument, read_index
from tidelog.spark.format.segment import segment_in_commit

_OFFSETS_VERSIONS: Final = (b"v1", b"v2")
_NEWEST_COMMIT: Final = 3
"""2 has checkpoint ids; 3 has the query's sinks as well, once they have names."""


class NamedId(NamedTuple):
    """A state store's checkpoint id as a commit names it."""

    operator: int
    partition: int
    id: str


@dataclass(frozen=True)
class Commit:
    """One committed batch; its state has version `batch + 1`."""

    batch: int
    spark: bytes
    """Spark's own lines."""
    format: int
    """1: without checkpoint ids, 2: with them, 3: with the query's sinks as well."""
    ids: tuple[NamedId, ...]
    index: IndexDocument | None
    """The index of the batch; None when there is no index line, or a damaged one."""
    damage: TidelogError | None
    """What is wrong with the index line."""
    segment: int | None
    """Length in bytes of the segment within the commit; None without one that can be read."""
    size: int
    """Bytes of the whole object."""

    @cached_property
    def named(self) -> frozenset[NamedId]:
        """`ids`, to look up."""
        return frozenset(self.ids)

    @cached_property
    def partitions(self) -> frozenset[tuple[int, int]]:
        """Operators and partitions that had a part in the batch."""
        return frozenset((id_.operator, id_.partition) for id_ in self.ids)


class Offsets(NamedTuple):
    """What `offsets/N` says of a batch."""

    metadata: Mapping[str, Any]
    """Such as `batchTimestampMs`, and, as `conf`, the settings that a restarted query keeps."""
    file_logs: Mapping[int, int]
    """Of each source that reads files the newest entry of its log, `sources/<source>/`."""
    documents: tuple[Any, ...] = ()
    """What each source has said of its position, as JSON."""


def read_offsets(data: bytes) -> Offsets:
    """The file is a version and JSON documents, one per line, of which version 2 has the name of
    its source before each offset; raises ValueError.
    """
    version, metadata, *sources = data.split(b"\n")
    if version.strip() not in _OFFSETS_VERSIONS:
        raise ValueError(repr(version[:20]))
    has_names = version.strip() == b"v2"
    file_logs: dict[int, int] = {}
    documents: list[Any] = []
    try:
        for number, line in enumerate(sources):
            text = line.partition(b":")[2] or line if has_names else line
            if text.strip() in {b"", b"-"}:
                continue
            documents.append(msgspec.json.decode(text))
            entry = _file_log(documents[-1])
            if entry is not None and not has_names:
                file_logs[number] = entry
        facts = msgspec.json.decode(metadata, type=dict[str, Any])
        return Offsets(facts, file_logs, tuple(documents))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as cause:
        raise ValueError(str(cause)) from cause


def _file_log(offset: Any) -> int | None:
    entry = offset.get("logOffset") if isinstance(offset, dict) else None
    return entry if isinstance(entry, int) else None


def read_query_id(metadata: bytes) -> str:
    """Spark's id of a query in its `metadata`; raises ValueError."""
    try:
        return str(msgspec.json.decode(metadata, type=dict[str, Any])["id"])
    except KeyError as cause:
        raise ValueError("no id") from cause
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as cause:
        raise ValueError(str(cause)) from cause


def read_commit(batch: int, data: bytes, where: str) -> Commit:
    """Parse a commit; raises CorruptObjectError when Spark's own lines are damaged: not what Spark
    writes, or with another id than the index, which has a checksum.
    """
    first, _, rest = data.partition(b"\n")
    second, _, rest = rest.partition(b"\n")
    line = rest.partition(b"\n")[0].strip()
    spark = first + b"\n" + second if second else first
    index, damage = _index(line, batch, where)
    version, metadata = _version(first.strip(), where), _metadata(second, where)
    _refuse_other_version(version, metadata, where)
    ids = _ids(metadata, where)
    _refuse_other_ids(ids, index, where)
    return Commit(
        batch=batch,
        spark=spark,
        format=version,
        ids=ids,
        index=index,
        damage=damage,
        segment=_segment_bytes(data, where),
        size=len(data),
    )


def _index(line: bytes, batch: int, where: str) -> tuple[IndexDocument | None, TidelogError | None]:
    if not line:
        return None, None
    try:
        index = read_index(line.decode(errors="replace"), where)
    except TidelogError as error:
        return None, error
    if (index.first, index.last) != (batch, batch):
        actual = f"that of batches {index.first} to {index.last}"
        return None, damaged(f"object {where}", f"the index of batch {batch} on line 3", actual)
    return index, None


def _segment_bytes(data: bytes, where: str) -> int | None:
    try:
        return len(segment_in_commit(data, where))
    except CorruptObjectError:
        return None  # what needs it names it


def _version(line: bytes, where: str) -> int:
    text = line.decode(errors="replace")
    if not text.startswith("v") or not text[1:].isdecimal() or not int(text[1:]):
        raise damaged(f"object {where}", "a version such as v2 on line 1", repr(text[:80]))
    if int(text[1:]) > _NEWEST_COMMIT:
        raise FormatVersionError(
            f"object {where}",
            expected=f"a commit of version <= {_NEWEST_COMMIT}",
            found=f"version {text[1:]}",
            action="use a tidelog release that supports the Spark that wrote it",
        )
    return int(text[1:])


def _metadata(line: bytes, where: str) -> Mapping[str, Any]:
    if not line.strip():
        return {}
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as cause:
        raise damaged(f"object {where}", "Spark's JSON on line 2", repr(line[:80])) from cause


def _refuse_other_version(version: int, metadata: Mapping[str, Any], where: str) -> None:
    """Raise CorruptObjectError for a version that does not have what the second line has: a digit
    that flipped, which Spark refuses or takes for a commit without ids.
    """
    has_ids, sinks = metadata.get("stateUniqueIds"), metadata.get("sinkMetadataMap")
    if sinks:
        expected, content = 3, "the sinks"
    elif has_ids:
        expected, content = 2, "checkpoint ids"
    else:
        expected, content = min(version, 2), "no sinks"
    if version != expected:
        raise damaged(
            f"object {where}",
            f"version v{expected} on line 1, as line 2 has {content}",
            f"v{version}",
        )


def _ids(metadata: Mapping[str, Any], where: str) -> tuple[NamedId, ...]:
    try:
        ids: list[NamedId] = []
        for operator, partitions in (metadata.get("stateUniqueIds") or {}).items():
            for partition, stores in enumerate(partitions):
                for store_id in stores or ():
                    if isinstance(store_id, str):
                        ids.append(NamedId(int(operator), partition, store_id))
        return tuple(ids)
    except (ValueError, TypeError, AttributeError) as cause:
        actual = repr(metadata.get("stateUniqueIds"))[:80]
        raise damaged(f"object {where}", "checkpoint ids on line 2", actual) from cause


def _refuse_other_ids(ids: tuple[NamedId, ...], index: IndexDocument | None, where: str) -> None:
    entries = index.entries if index is not None else ()
    indexed = {NamedId(e.name.operator, e.name.partition, e.name.id) for e in entries}
    # Ids that the index lacks may be of files; ids that only the index has cannot be.
    unknown, unlisted = set(ids) - indexed, indexed - set(ids)
    for right in sorted(unlisted):
        other_ids = sorted(other.id for other in unknown if other[:2] == right[:2])
        raise CorruptObjectError(
            f"object {where} is damaged on line 2, Spark's own",
            expected=f"the id {right.id} of operator {right.operator}, partition "
            f"{right.partition}, which the checked index on line 3 has",
            found=f"{other_ids[0]} in its place" if other_ids else "no such id",
            action=f"stop the query and write {right.id} there; the rest of the object is right",
            retry_safe=False,
        )
