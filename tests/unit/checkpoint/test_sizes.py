"""Full sizes are what a restore reads, incremental ones what the checkpoint before lacks.

A table file is taken only for what it is.
"""

from dataclasses import astuple

import msgspec
import pytest

from tidelog import Checkpoint, CorruptObjectError
from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.manifest import (
    Author,
    MaterializationRef,
    OperatorState,
    SubtaskState,
    TableObject,
)
from tidelog.checkpoint.sizes import checkpoint_sizes
from tidelog.ids import CheckpointId, Generation, KeyGroup, MaterializationId, SeqNo, Slot
from tidelog.storage.document import checksum, content_hash
from tidelog.table.frame import encode_rows

FILES = {"first": {"tables/a": 100, "tables/b": 200}, "second": {"tables/b": 200, "tables/c": 50}}


def log(segment: str, length: int, offset: int = 0) -> LogRange:
    group = KeyGroup(0)
    return LogRange(segment, offset, length, SeqNo(0), SeqNo(1), group, group)


def table(descriptor: str) -> MaterializationRef:
    """A snapshot with 7 bytes of private files."""
    size = sum(FILES[descriptor].values()) + 7
    return MaterializationRef(MaterializationId(1), descriptor, 10, SeqNo(0), size)


def checkpoint(*states: SubtaskState) -> Checkpoint:
    operator = OperatorState("count", 8, (), states)
    author = Author(Generation(0), "a")
    return Checkpoint(Slot(1), author, CheckpointId(1), 0, "job", (operator,))


def state(
    *ranges: LogRange, inline: tuple[bytes, ...] = (), ref: MaterializationRef | None = None
) -> SubtaskState:
    return SubtaskState(0, 0, 7, SeqNo(1), "rocksdb", ref, ranges, inline)


BEFORE = checkpoint(state(log("s1", 10), inline=(b"xxx",), ref=table("first")))


def sizes(new: Checkpoint, previous: Checkpoint | None) -> tuple[int, ...]:
    return astuple(checkpoint_sizes(new, previous, lambda name: FILES.get(name, {})))


def test_everything_is_new_in_the_first_checkpoint() -> None:
    assert sizes(BEFORE, None) == (13, 13, 307, 307)


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (state(log("s1", 10), ref=table("first")), (10, 0, 307, 0)),
        (state(log("s1", 10), log("s2", 5), ref=table("first")), (15, 5, 307, 0)),
        (state(log("s1", 10), log("s1", 4, offset=10), ref=table("first")), (14, 4, 307, 0)),
        (state(log("s1", 12), ref=table("first")), (12, 2, 307, 0)),
        (state(log("s1", 8), ref=table("first")), (8, 0, 307, 0)),
        (state(inline=(b"xxx",), ref=table("first")), (3, 3, 307, 0)),
        (state(log("s2", 5), ref=table("second")), (5, 5, 257, 57)),
        (state(), (0, 0, 0, 0)),
    ],
    ids=["same", "segment", "range", "longer", "trimmed", "inline", "materialized", "empty"],
)
def test_only_what_the_checkpoint_before_lacks_is_new(
    new: SubtaskState, expected: tuple[int, ...]
) -> None:
    assert sizes(checkpoint(new), BEFORE) == expected


def test_the_subtasks_of_a_checkpoint_are_added_up() -> None:
    other = msgspec.structs.replace(state(log("s1", 20, offset=10), ref=table("second")), index=1)
    both = checkpoint(*BEFORE.operators[0].subtasks, other)
    assert sizes(both, BEFORE) == (33, 23, 564, 57)


def stored(data: bytes) -> TableObject:
    name = f"tables/00000001/{content_hash(data)}-count-0-3.sst"
    return TableObject("000012.sst", name, len(data), checksum(data))


def test_another_file_of_the_same_length_and_crc_is_refused() -> None:
    """Whatever ends with its own CRC32C has one and the same CRC32C."""
    file, other = encode_rows([(b"key", b"value")]), encode_rows([(b"key", b"VALUE")])
    assert len(file) == len(other)
    assert checksum(file) == checksum(other)
    with pytest.raises(CorruptObjectError, match="content whose hash"):
        stored(file).check(other, "restore an older slot")
