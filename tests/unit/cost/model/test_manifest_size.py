"""Sizes of manifests and descriptors are those of documents as they are written.

Names differ in length, hence a tolerance.
"""

import pytest

from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.manifest import (
    Author,
    Checkpoint,
    Descriptor,
    MaterializationRef,
    OperatorState,
    StateInfo,
    SubtaskState,
    TableObject,
    encode_descriptor,
    encode_entry,
)
from tidelog.cost.model.manifest_size import descriptor_bytes, manifest_bytes
from tidelog.ids import CheckpointId, Generation, KeyGroup, MaterializationId, SeqNo, Slot
from tidelog.storage import object_names

TOKEN = "91b7584a2265b1f5"


def a_manifest(subtasks: int, ranges: int, inline: int) -> bytes:
    def log(subtask: int) -> tuple[LogRange, ...]:
        name = object_names.segment(Generation(3), TOKEN, 700)
        first = SeqNo(12_345_678)
        parts = (name, 65_432, 32_109, first, SeqNo(first + 98), KeyGroup(17), KeyGroup(29))
        return (LogRange(*parts),) * ranges

    def state(subtask: int) -> SubtaskState:
        descriptor = object_names.materialization(
            Generation(3), "count", subtask, MaterializationId(4_321)
        )
        ref = MaterializationRef(
            MaterializationId(4_321), descriptor, 7_654, SeqNo(12_345_678), 123_456_789
        )
        return SubtaskState(
            subtask, KeyGroup(16), KeyGroup(31), SeqNo(12_345_678), "rocksdb", ref, log(subtask),
            (bytes(inline),) if inline else (), updates=23_456_789,
        )  # fmt: skip

    source = OperatorState("source", 128, (StateInfo(0, "$splits", "splits", ("msgpack",)),), ())
    info = StateInfo(0, "count", "aggregate", ("msgpack",))
    keyed = OperatorState("count", 128, (info,), tuple(map(state, range(subtasks))))
    return encode_entry(
        Checkpoint(
            Slot(54_321), Author(Generation(3), TOKEN), CheckpointId(54_320), 1_760_000_000_000,
            "word-count", (source, keyed),
        )
    )  # fmt: skip


@pytest.mark.parametrize("subtasks", [1, 8, 64])
@pytest.mark.parametrize(("ranges", "inline"), [(0, 0), (30, 0), (30, 900), (400, 0)])
def test_a_manifest_is_as_long_as_estimated(subtasks: int, ranges: int, inline: int) -> None:
    estimated = manifest_bytes(subtasks, subtasks * ranges, subtasks * inline)
    assert estimated == pytest.approx(len(a_manifest(subtasks, ranges, inline)), rel=0.1)


@pytest.mark.parametrize("files", [0, 5, 300])
def test_a_descriptor_is_as_long_as_estimated(files: int) -> None:
    name = object_names.table_file(Generation(3), f"{TOKEN}{TOKEN}-count-1-4321")
    file = TableObject("004321.sst", name, 8_388_608, "0a1b2c3d")
    descriptor = Descriptor(
        MaterializationId(4_321), "count", 1, Generation(3), "rocksdb", SeqNo(12_345_678),
        (file,) * files, {"SNAPSHOT": bytes(3_000)},
    )  # fmt: skip
    assert descriptor_bytes(files, 3_000) == pytest.approx(
        len(encode_descriptor(descriptor)), rel=0.1
    )
