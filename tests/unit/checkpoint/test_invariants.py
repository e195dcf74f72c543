"""Every invariant has a manifest or a store that breaks it, and names what broke.

Full sizes are what a restore reads, incremental ones what the checkpoint before lacks.

A table file is taken only for what it is.
"""

from dataclasses import astuple
from typing import Any

import msgspec
import pytest

from tidelog import Checkpoint, CorruptObjectError, InvariantError
from tidelog.changelog.block import seal, seal_metadata
from tidelog.changelog.change import ChangeBatch
from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.descriptor import Descriptor, TableObject
from tidelog.checkpoint.finding import Finding
from tidelog.checkpoint.invariants import (
    Invariant,
    Need,
    check_manifest,
    descriptor_violations,
    manifest_violations,
    slot_violations,
    table_needs,
)
from tidelog.checkpoint.manifest import (
    Author,
    Entry,
    InheritedState,
    MaterializationRef,
    OperatorState,
    Start,
    StateInfo,
    SubtaskState,
)
from tidelog.checkpoint.sizes import checkpoint_sizes
from tidelog.ids import CheckpointId, Generation, KeyGroup, MaterializationId, SeqNo, Slot
from tidelog.storage.document import checksum, content_hash
from tidelog.table.frame import encode_rows

OLD = Author(Generation(0), "old")
NEW = Author(Generation(4), "new")
COUNT = StateInfo(0, "count", "value", ("count bigint",))


def part(first: int, end: int, name: str = "s", offset: int = 44, length: int = 100) -> LogRange:
    return LogRange(name, offset, length, SeqNo(first), SeqNo(end), KeyGroup(0), KeyGroup(9))


def block(first: int, end: int) -> bytes:
    keys = [bytes([0, 1, 0, 0, number]) for number in range(end - first)]
    return seal(ChangeBatch(SeqNo(first), keys, [b"v"] * len(keys))).data


def ref(upto: int) -> MaterializationRef:
    return MaterializationRef(MaterializationId(1), "d", 50, SeqNo(upto), 30)


def subtask(index: int = 0, groups: tuple[int, int] = (0, 9), **fields: Any) -> SubtaskState:
    settings: dict[str, Any] = {"seqno": SeqNo(0), "table": "memory", **fields}
    return SubtaskState(index, groups[0], groups[1], **settings)


def operator(*subtasks: SubtaskState, states: tuple[StateInfo, ...] = (COUNT,)) -> OperatorState:
    return OperatorState("op", 10, states, subtasks)


def checkpoint(*operators: OperatorState, slot: int = 7, number: int = 3) -> Checkpoint:
    return Checkpoint(Slot(slot), NEW, CheckpointId(number), 0, "job", operators)


def with_log(
    seqno: int, *log: LogRange, upto: int = 0, inline: tuple[bytes, ...] = ()
) -> Checkpoint:
    materialization = ref(upto) if upto else None
    state = subtask(seqno=SeqNo(seqno), log=log, inline=inline, materialization=materialization)
    return checkpoint(operator(state))


def inherited(groups: tuple[int, int] = (0, 9), **fields: Any) -> InheritedState:
    settings: dict[str, Any] = {"seqno": SeqNo(8), "table": "memory", "log": (part(0, 8),)}
    return InheritedState(3, groups[0], groups[1], **{**settings, **fields})


def heir(*layers: InheritedState, **fields: Any) -> Checkpoint:
    """One subtask that inherited and then logged changes 20 to 25."""
    settings: dict[str, Any] = {"seqno": SeqNo(25), "start": SeqNo(20), "log": (part(20, 25),)}
    return checkpoint(operator(subtask(inherited=layers, **{**settings, **fields})))


def start(author: Author) -> Start:
    return Start(Slot(author.generation), author, 0, "job")


def broken(violations: list[Finding]) -> set[str]:
    return {violation.check for violation in violations}


@pytest.mark.parametrize(
    "sound",
    [
        pytest.param(with_log(0), id="nothing logged"),
        pytest.param(with_log(8, upto=8), id="everything materialized"),
        pytest.param(with_log(8, part(0, 5), part(5, 8)), id="ranges in a row"),
        pytest.param(with_log(8, part(0, 12)), id="the last range reaches beyond"),
        pytest.param(with_log(8, part(2, 8), upto=5), id="the first range starts before"),
        pytest.param(with_log(8, part(0, 5), inline=(block(5, 8),)), id="an inline tail"),
        pytest.param(with_log(9, part(4, 9), inline=(block(0, 2), block(2, 4))), id="interleaved"),
        pytest.param(
            with_log(5, part(0, 5), inline=(seal_metadata(b"[]", SeqNo(5)).data,)),
            id="metadata counts no change",
        ),
        pytest.param(
            checkpoint(operator(subtask(0, (0, 3)), subtask(1, (4, 9)))), id="two subtasks"
        ),
        pytest.param(heir(inherited((0, 3)), inherited((4, 9))), id="inherited"),
        pytest.param(
            heir(inherited(start=SeqNo(5), log=(part(5, 8),))), id="inherited from an heir"
        ),
        pytest.param(heir(seqno=SeqNo(20), log=()), id="nothing inherited, nothing logged"),
    ],
)
def test_a_sound_manifest_passes(sound: Checkpoint) -> None:
    assert manifest_violations(sound) == []
    check_manifest(sound)


@pytest.mark.parametrize(
    ("wrong", "invariant"),
    [
        (checkpoint(operator(subtask(0, (0, 8)))), Invariant.KEY_GROUPS),
        (checkpoint(operator(subtask(0, (1, 9)))), Invariant.KEY_GROUPS),
        (checkpoint(operator(subtask(0, (0, 4)), subtask(1, (4, 9)))), Invariant.KEY_GROUPS),
        (checkpoint(operator(subtask(0, (0, 4)), subtask(1, (6, 9)))), Invariant.KEY_GROUPS),
        (checkpoint(operator(subtask(0, (5, 9)), subtask(1, (0, 4)))), Invariant.KEY_GROUPS),
        (checkpoint(operator(subtask(1))), Invariant.SUBTASKS),
        (checkpoint(operator(subtask()), operator(subtask())), Invariant.SUBTASKS),
        (
            checkpoint(
                operator(subtask(), states=(COUNT, msgspec.structs.replace(COUNT, name="x")))
            ),
            Invariant.STATE_IDS,
        ),
        (
            checkpoint(operator(subtask(), states=(COUNT, msgspec.structs.replace(COUNT, id=1)))),
            Invariant.STATE_IDS,
        ),
        (with_log(8, part(0, 5), part(6, 8)), Invariant.LOG),
        (with_log(8, part(0, 5), part(4, 8)), Invariant.LOG),
        (with_log(8, part(1, 8)), Invariant.LOG),
        (with_log(8, part(6, 8), upto=5), Invariant.LOG),
        (with_log(8, part(0, 7)), Invariant.LOG),
        (with_log(8, part(0, 9), part(9, 12)), Invariant.LOG),
        (with_log(8), Invariant.LOG),
        (with_log(5, upto=8), Invariant.LOG),
        (with_log(5, inline=(block(0, 8),)), Invariant.LOG),
        (with_log(8, part(0, 8, offset=43)), Invariant.RANGES),
        (with_log(8, part(0, 8, length=0)), Invariant.RANGES),
        (with_log(8, inline=(block(0, 8)[:-1],)), Invariant.READABLE),
        (checkpoint(slot=4), Invariant.GENERATION),
        (heir(inherited((0, 10))), Invariant.INHERITED),
        (heir(inherited((6, 5))), Invariant.INHERITED),
        (heir(inherited(seqno=SeqNo(20), log=(part(0, 20),))), Invariant.INHERITED),
        (heir(inherited(), materialization=ref(20)), Invariant.INHERITED),
        (heir(inherited(log=(part(1, 8),))), Invariant.LOG),
        (heir(inherited(log=(part(0, 8, offset=3),))), Invariant.RANGES),
        (heir(inherited(), log=(part(0, 25),)), Invariant.LOG),
    ],
)
def test_a_wrong_manifest_is_found_and_never_written(
    wrong: Checkpoint, invariant: Invariant
) -> None:
    assert broken(manifest_violations(wrong)) == {invariant}
    with pytest.raises(InvariantError, match=invariant):
        check_manifest(wrong)


def slots(*entries: Entry) -> dict[Slot, Entry]:
    return {entry.slot: entry for entry in entries}


def test_a_sound_row_of_slots_passes() -> None:
    later = checkpoint(slot=9, number=5)
    entries = slots(start(OLD), start(NEW), checkpoint(), later)
    objects = ["tables/00000000/ab.sst", "segments/00000004-p-0000000001.seg"]
    assert slot_violations(entries, [], objects) == []


OTHER = Author(Generation(4), "other")


@pytest.mark.parametrize(
    ("entries", "objects", "invariant", "slot"),
    [
        (slots(start(OLD), start(OTHER), checkpoint()), [], Invariant.GENERATION, 7),
        (
            slots(start(OLD), start(NEW), checkpoint(), checkpoint(slot=8)),
            [],
            Invariant.CHECKPOINT_IDS,
            8,
        ),
        (slots(start(OLD), checkpoint()), [], Invariant.STARTS, 4),
        (slots(start(OLD), start(NEW)), ["tables/00000006/ab.sst"], Invariant.STARTS, 6),
    ],
)
def test_a_wrong_row_of_slots_is_found(
    entries: dict[Slot, Entry], objects: list[str], invariant: Invariant, slot: int
) -> None:
    found = slot_violations(entries, [], objects)
    where = f"checkpoints/{slot:08d}.json"
    assert [(violation.check, violation.where) for violation in found] == [(invariant, where)]


def test_starts_before_the_newest_may_be_gone() -> None:
    """Whoever wins a slot looks for one above it: the newest start is all that fences."""
    assert slot_violations(slots(start(NEW)), [], ["tables/00000002/ab.sst"]) == []


def test_an_unreadable_slot_may_be_the_start_that_is_looked_for() -> None:
    assert slot_violations(slots(start(OLD), checkpoint()), [Slot(4)], []) == []


def test_a_descriptor_must_say_what_the_manifest_says() -> None:
    table = TableObject("1.sst", "tables/00000004/ab.sst", 10, "00000000")
    descriptor = Descriptor(
        MaterializationId(1), "op", 0, Generation(4), "memory", SeqNo(8), (table,), {"i": b"x" * 20}
    )
    state = subtask(seqno=SeqNo(8), materialization=ref(8))
    assert descriptor_violations("op", state.own, ref(8), descriptor) == []
    assert table_needs(descriptor) == [Need("tables/00000004/ab.sst", 10, exact=True)]
    for change in ({"upto": 7}, {"operator": "x"}, {"subtask": 1}, {"table": "rocksdb"}, {"id": 2}):
        wrong = msgspec.structs.replace(descriptor, **change)
        found = descriptor_violations("op", state.own, ref(8), wrong)
        assert broken(found) == {Invariant.DESCRIPTOR}


FILES = {"first": {"tables/a": 100, "tables/b": 200}, "second": {"tables/b": 200, "tables/c": 50}}


def log(segment: str, length: int, offset: int = 0) -> LogRange:
    return part(0, 1, segment, offset, length)


def table(descriptor: str) -> MaterializationRef:
    """A snapshot with 7 bytes of private files."""
    size = sum(FILES[descriptor].values()) + 7
    return MaterializationRef(MaterializationId(1), descriptor, 10, SeqNo(0), size)


def state(*ranges: LogRange, inline: tuple[bytes, ...] = (), ref: Any = None) -> SubtaskState:
    return subtask(materialization=ref, log=ranges, inline=inline)


BEFORE = checkpoint(operator(state(log("s1", 10), inline=(b"xxx",), ref=table("first"))))


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
    assert sizes(checkpoint(operator(new)), BEFORE) == expected


def test_the_subtasks_of_a_checkpoint_are_added_up() -> None:
    other = msgspec.structs.replace(state(log("s1", 20, offset=10), ref=table("second")), index=1)
    both = checkpoint(operator(*BEFORE.operators[0].subtasks, other))
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
        stored(file).check(other, "restore an older checkpoint")
