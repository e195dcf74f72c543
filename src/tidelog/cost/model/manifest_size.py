"""How large manifests and descriptors are, learned from the code that writes them.

Invariant: sizes come from encoded samples, so a change of the format changes them; numbers in a
sample have as many digits as those of the job.
"""

from dataclasses import dataclass
from functools import cache
from typing import Final

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
from tidelog.ids import CheckpointId, Generation, KeyGroup, MaterializationId, SeqNo, Slot
from tidelog.storage import object_names

_GENERATION: Final = Generation(1)
_TOKEN: Final = "0123456789abcdef"
_OPERATOR: Final = "aggregate"
_BASE64: Final = 4 / 3
_SAMPLE: Final = 100


@dataclass(frozen=True, slots=True)
class ManifestSizes:
    """Bytes of a checkpoint's manifest by what it lists."""

    empty: float
    """Bytes of the manifest of a job with two operators and one subtask."""
    subtask: float
    log_range: float

    def of(self, subtasks: float, ranges: float, inline_bytes: float) -> float:
        """A manifest with these numbers of subtasks and log ranges, and blocks inline."""
        rest = self.subtask * (subtasks - 1) + self.log_range * ranges
        return self.empty + rest + inline_bytes * _BASE64


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers in a manifest; only how many digits they have counts."""

    seqno: int
    slot: int
    segment_bytes: int
    range_bytes: int

    @classmethod
    def of(cls, seqno: float, slot: float, segment_bytes: float, range_bytes: float) -> "Numbers":
        """Numbers of the same lengths."""
        return cls(*map(_shortest, (seqno, slot, segment_bytes, range_bytes)))


def _shortest(number: float) -> int:
    """The smallest number with as many digits."""
    return int(10 ** (len(str(int(number))) - 1))


@cache
def manifest_sizes(numbers: Numbers) -> ManifestSizes:
    """Sizes of the manifests that this release writes."""
    empty = _encoded(numbers, 1, 0)
    return ManifestSizes(
        empty=empty,
        subtask=(_encoded(numbers, 1 + _SAMPLE, 0) - empty) / _SAMPLE,
        log_range=(_encoded(numbers, 1, _SAMPLE) - empty) / _SAMPLE,
    )


@cache
def _descriptor_sizes() -> tuple[float, float]:
    """(bytes of a descriptor without files, bytes per shared file)."""
    empty = len(encode_descriptor(_descriptor(0)))
    return empty, (len(encode_descriptor(_descriptor(_SAMPLE))) - empty) / _SAMPLE


def descriptor_bytes(files: float, private_bytes: float) -> float:
    """A descriptor that names shared files and holds private ones."""
    empty, per_file = _descriptor_sizes()
    return empty + per_file * files + private_bytes * _BASE64


def _encoded(numbers: Numbers, subtasks: int, ranges: int) -> int:
    seqno = SeqNo(numbers.seqno)
    name = object_names.segment(_GENERATION, _TOKEN, 1)
    log_range = LogRange(
        name, numbers.segment_bytes, numbers.range_bytes, seqno, seqno, KeyGroup(10), KeyGroup(99)
    )
    id = MaterializationId(numbers.slot)
    descriptor = object_names.materialization(_GENERATION, _OPERATOR, 1, id)
    states = tuple(
        SubtaskState(
            index=index,
            first_key_group=KeyGroup(10),
            last_key_group=KeyGroup(99),
            seqno=seqno,
            table="rocksdb",
            materialization=MaterializationRef(id, descriptor, 10_000, seqno, 1 << 30),
            log=(log_range,) * ranges,
            updates=numbers.seqno,
        )
        for index in range(subtasks)
    )
    info = StateInfo(0, "aggregate", "aggregate", ("msgpack",))
    checkpoint = Checkpoint(
        slot=Slot(numbers.slot),
        author=Author(_GENERATION, _TOKEN),
        checkpoint_id=CheckpointId(numbers.slot),
        created_ms=1_700_000_000_000,
        job="job-name",
        operators=(
            OperatorState("source", 128, (info,), ()),
            OperatorState(_OPERATOR, 128, (info,), states),
        ),
    )
    return len(encode_entry(checkpoint))


def _descriptor(files: int) -> Descriptor:
    name = object_names.table_file(_GENERATION, f"{_TOKEN}{_TOKEN}-{_OPERATOR}-1-10000")
    file = TableObject("010000.sst", name, 8 << 20, "0123abcd")
    return Descriptor(
        id=MaterializationId(10_000),
        operator=_OPERATOR,
        subtask=1,
        generation=_GENERATION,
        table="rocksdb",
        upto=SeqNo(1 << 31),
        shared=(file,) * files,
        private={},
    )
