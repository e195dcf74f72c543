"""What the golden slots and descriptors hold."""

from collections.abc import Callable
from functools import partial
from typing import Any

from tidelog import Checkpoint, Savepoint
from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.descriptor import Descriptor, TableObject, encode_descriptor
from tidelog.checkpoint.manifest import (
    AheadOfWatermark,
    Author,
    BarrierFacts,
    Entry,
    InFlightRef,
    InheritedState,
    MaterializationRef,
    OperatorPiece,
    OperatorState,
    Start,
    StateInfo,
    SubtaskState,
    encode_entry,
)
from tidelog.ids import CheckpointId, Generation, KeyGroup, MaterializationId, SeqNo, Slot

AUTHOR = Author(Generation(3), "00ff00ff00ff00ff")
START = Start(Slot(3), AUTHOR, 1_700_000_000_000, "revenue", history=((Slot(0), Slot(1)),))
MOVE = Start(
    Slot(5),
    Author(Generation(5), "00ff00ff00ff00ff"),
    1_700_000_005_000,
    "revenue",
    history=((Slot(4), Slot(4)),),
    moved_to="s3a://bucket/revenue",
)
TOTAL = StateInfo(0, "total", "value", ("sum bigint",))
TABLE = MaterializationRef(
    *(MaterializationId(2), "materializations/00000003/count-0-2.json", 512, SeqNo(40), 65_536)
)


def log_range(writer: str, length: int, last_key_group: int) -> LogRange:
    """Changes 40 to 44 in the first segment of a writer."""
    segment = f"segments/00000003-{writer}-0000000001.seg"
    return LogRange(
        segment, 44, length, SeqNo(40), SeqNo(45), KeyGroup(0), KeyGroup(last_key_group)
    )


RANGE = log_range("00ff00ff00ff00ff", 110, 63)


def subtask(seqno: int, table: str = "memory", **fields: Any) -> tuple[SubtaskState]:
    """The only subtask of an operator."""
    return (SubtaskState(0, 0, 127, SeqNo(seqno), table, **fields),)


def entry(
    slot: int, checkpoint: int, second: int, *operators: OperatorState, **fields: Any
) -> Checkpoint:
    """A checkpoint of so many seconds after the first; a savepoint if it has a name."""
    created_ms = 1_700_000_000_000 + 1000 * second
    kind = Savepoint if "name" in fields else Checkpoint
    return kind(
        *(Slot(slot), AUTHOR, CheckpointId(checkpoint), created_ms, "revenue", operators),
        history=((Slot(4), Slot(slot - 1)),),
        **fields,
    )


CHECKPOINT = entry(
    9,
    5,
    1,
    OperatorState(
        "count",
        128,
        (TOTAL, StateInfo(1, "seen", "map", ("id string", "at bigint"), 60_000)),
        (
            SubtaskState(
                *(0, 0, 63, SeqNo(47), "rocksdb"),
                materialization=TABLE,
                log=(RANGE,),
                inline=(b"a whole block",),
                watermark=-1,
                transactions=(b"\x92\x05\xa1t",),
                finished=True,
            ),
            SubtaskState(1, 64, 127, SeqNo(0), "rocksdb"),
        ),
    ),
    final=True,
)
SAVEPOINT = entry(
    12,
    7,
    3,
    OperatorState(
        *("count", 128, (TOTAL,)),
        subtask(45, log=(log_range("sp-7", 210, 65_535),), start=SeqNo(40)),
    ),
    name="before-upgrade",
    savepoint_format="canonical",
)
RESCALED = entry(
    13,
    6,
    2,
    OperatorState(
        "count",
        128,
        (TOTAL,),
        subtask(
            93,
            inline=(b"a whole block",),
            start=SeqNo(90),
            inherited=(
                InheritedState(
                    *(0, 0, 63, SeqNo(45), "rocksdb"), materialization=TABLE, log=(RANGE,)
                ),
                InheritedState(
                    *(1, 64, 127, SeqNo(89), "rocksdb"), start=SeqNo(80), inline=(b"another block",)
                ),
            ),
        ),
    ),
)
FINISHED = entry(
    14,
    8,
    4,
    OperatorState(
        "orders",
        128,
        (StateInfo(0, "$splits", "splits", ("msgpack",)),),
        subtask(0, watermark=9_223_372_036_854_775_807, finished=True),
        chain=("parse", "only-paid"),
    ),
)
WITH_OPERATOR_STATE = entry(
    15,
    9,
    5,
    OperatorState(
        "with-broadcast",
        128,
        (),
        subtask(
            0,
            operator_state=(
                OperatorPiece(
                    "with-broadcast", "rules", "broadcast", (b"\x92\xa3eur\xcb?\xf0" + bytes(6),)
                ),
                OperatorPiece("with-broadcast", "none", "broadcast", ()),
            ),
        ),
    ),
)
AHEAD = entry(
    16,
    9,
    5,
    OperatorState(
        "window",
        128,
        (StateInfo(0, "windows", "window-aggregate", ("msgpack", "size 10 ms, slide 10 ms")),),
        subtask(
            93,
            inline=(b"a whole block",),
            watermark=-7,
            advancing=9,
            ahead=(AheadOfWatermark(0, 63, 19), AheadOfWatermark(100, 127, -1)),
            start=SeqNo(90),
        ),
    ),
)
DESCRIPTOR = Descriptor(
    id=MaterializationId(2),
    operator="count",
    subtask=0,
    generation=Generation(3),
    table="rocksdb",
    upto=SeqNo(40),
    shared=(TableObject("000012.sst", "tables/00000003/ab-count-0-2.sst", 65_000, "0a1b2c3d"),),
    private={"SNAPSHOT": b"TDLGROWS"},
)

IN_FLIGHT = entry(
    10,
    6,
    1,
    OperatorState(
        "count",
        128,
        (),
        subtask(
            0,
            in_flight=InFlightRef(
                log=(RANGE,),
                inline=(b"\x00block",),
                buffers=7,
                bytes=512,
                inputs=(("count", 0), ("sink", 1)),
                types=("orders:Order", "orders:Outer.Inner"),
            ),
            barrier=BarrierFacts(unaligned=True, start_delay_ms=12, alignment_ms=3),
        ),
    ),
)

DOCUMENTS: dict[str, Entry | Descriptor] = {
    "slot_start_v1.json": START,
    "slot_move_v1.json": MOVE,
    "slot_checkpoint_v1.json": CHECKPOINT,
    "slot_savepoint_v1.json": SAVEPOINT,
    "slot_checkpoint_inherited_v1.json": RESCALED,
    "descriptor_v1.json": DESCRIPTOR,
    "slot_checkpoint_finished_v1.json": FINISHED,
    "slot_checkpoint_operator_state_v1.json": WITH_OPERATOR_STATE,
    "slot_checkpoint_ahead_v1.json": AHEAD,
    "slot_checkpoint_in_flight_v1.json": IN_FLIGHT,
}


def encoded(document: Entry | Descriptor) -> bytes:
    if isinstance(document, Descriptor):
        return encode_descriptor(document)
    return encode_entry(document)


FILES: dict[str, Callable[[], bytes]] = {
    name: partial(encoded, document) for name, document in DOCUMENTS.items()
}
