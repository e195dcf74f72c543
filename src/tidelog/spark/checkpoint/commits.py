"""The files of a batch: `offsets/N`, and `commits/N`, which ends with the batch's index and, where
it is small, the segment with its changelogs.

Invariants: Spark's lines are never changed, only what follows them; a damaged index line leaves
Spark's part usable.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from tidelog.errors import CorruptObjectError, TidelogError
from tidelog.spark.format.damage import damaged
from tidelog.spark.format.index import IndexDocument, read_index
from tidelog.spark.format.segment import segment_in_commit


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
    """1: without checkpoint ids, 2: with them."""
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
        return frozenset((named.operator, named.partition) for named in self.ids)


def read_offsets(data: bytes) -> Mapping[str, Any]:
    """The metadata in `offsets/N`: such as `batchTimestampMs`, and, as `conf`, the settings that a
    restarted query keeps. The file is a version and JSON documents, one per line, of which version
    2 has the name of its source before each offset; raises ValueError.
    """
    version, metadata, *sources = data.split(b"\n")
    if not version.startswith(b"v"):
        raise ValueError(repr(version[:20]))
    if version.strip() == b"v2":
        sources = [line.partition(b":")[2] or line for line in sources]
    try:
        for offset in sources:
            if offset.strip() not in {b"", b"-"}:
                msgspec.json.decode(offset)
        return msgspec.json.decode(metadata, type=dict[str, Any])
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
    ids = _ids(second, where)
    _refuse_other_ids(ids, index, where)
    return Commit(
        batch=batch,
        spark=spark,
        format=_format(first.strip(), where),
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
        found = f"that of batches {index.first} to {index.last}"
        return None, damaged(f"object {where}", f"the index of batch {batch} on line 3", found)
    return index, None


def _segment_bytes(data: bytes, where: str) -> int | None:
    try:
        return len(segment_in_commit(data, where))
    except CorruptObjectError:
        return None  # what needs it names it


def _format(line: bytes, where: str) -> int:
    text = line.decode(errors="replace")
    if text.startswith("v") and text[1:].isdecimal():
        return int(text[1:])
    raise damaged(f"object {where}", "a version such as v2 on line 1", repr(text[:80]))


def _ids(line: bytes, where: str) -> tuple[NamedId, ...]:
    if not line.strip():
        return ()
    try:
        metadata = msgspec.json.decode(line, type=dict[str, Any])
        operators = (metadata.get("stateUniqueIds") or {}).items()
        return tuple(
            NamedId(int(operator), partition, store_id)
            for operator, partitions in operators
            for partition, stores in enumerate(partitions)
            for store_id in stores or ()
            if isinstance(store_id, str)
        )
    except (msgspec.MsgspecError, ValueError, TypeError, AttributeError, RecursionError) as cause:
        raise damaged(f"object {where}", "Spark's JSON on line 2", repr(line[:80])) from cause


def _refuse_other_ids(ids: tuple[NamedId, ...], index: IndexDocument | None, where: str) -> None:
    entries = index.entries if index is not None else ()
    indexed = {NamedId(e.name.operator, e.name.partition, e.name.id) for e in entries}
    # Ids that the index lacks may be of files; ids that only the index has cannot be.
    unknown, missing = set(ids) - indexed, indexed - set(ids)
    for right in sorted(missing):
        found = sorted(other.id for other in unknown if other[:2] == right[:2])
        raise CorruptObjectError(
            f"object {where} is damaged on line 2, Spark's own",
            expected=f"the id {right.id} of operator {right.operator}, partition "
            f"{right.partition}, which the checked index on line 3 has",
            found=f"{found[0]} in its place" if found else "no such id",
            action=f"stop the query and write {right.id} there; the rest of the object is right",
            retry_safe=False,
        )
