"""Manifests: what a slot of the checkpoint log holds.

Invariants: a manifest names every object its checkpoint needs, directly or through the
materialization descriptors it names; it is written once and never changed; it carries its author,
so "already exists" can be told apart from "a newer job took this slot".
Format: docs/internals/format.md, "Manifests, slots and materializations".
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Literal, TypeAlias

import msgspec

from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.formats import FORMATS, check_formats
from tidelog.errors import OLDER_CHECKPOINT, CorruptObjectError
from tidelog.ids import CheckpointId, Generation, MaterializationId, SeqNo, Slot
from tidelog.storage import object_names
from tidelog.storage.document import FORMAT_VERSION, open_document, seal_document

SlotRanges: TypeAlias = tuple[tuple[Slot, Slot], ...]
"""Slot numbers as ranges, first and last inclusive, in ascending order."""

SavepointFormat = Literal["canonical", "native"]
"""Canonical: all rows in files of their own; native: what a checkpoint refers to."""


class Author(msgspec.Struct, frozen=True):
    """Who wrote a slot: the incarnation and this very attempt."""

    generation: Generation
    attempt: str


class StateInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """One registered state of an operator; `id` is its number in row keys."""

    id: int
    name: str
    kind: str
    schema: tuple[str, ...]
    ttl_ms: int | None = None
    types: tuple[str, ...] = ()
    """Types of its values, where no schema says them; none: not known."""


class MaterializationRef(msgspec.Struct, frozen=True):
    """An uploaded table snapshot: its descriptor object, and the changes it covers."""

    id: MaterializationId
    descriptor: str
    size: int
    """Bytes of the descriptor object."""
    upto: SeqNo
    """Every change below this number is in the snapshot."""
    table_bytes: int
    """Bytes of all files of the snapshot."""


class InFlightRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """The in-flight data of one subtask: ranges of segments and after them inline blocks."""

    log: tuple[LogRange, ...] = ()
    inline: tuple[bytes, ...] = ()
    buffers: int = 0
    bytes: int = 0
    """Encoded, before compression."""
    inputs: tuple[tuple[str, int], ...] = ()
    """The inputs that its records are in flight to: operators, with the number of the input."""
    types: tuple[str, ...] = ()
    """Types of the job that its records are made of, `module:name`."""


class BarrierFacts(msgspec.Struct, frozen=True, array_like=True):
    """How the barrier passed a subtask; milliseconds."""

    unaligned: bool
    """The barrier overtook data, in an input or in an output."""
    start_delay_ms: int
    """From the trigger of the checkpoint to the first barrier that the subtask saw."""
    alignment_ms: int
    """From the first barrier that the subtask saw to its snapshot."""


class InheritedState(msgspec.Struct, frozen=True, omit_defaults=True):
    """State of a subtask of an earlier shape of the operator, clipped to some key groups."""

    subtask: int
    """Number of the subtask that wrote the log and the materialization."""
    first_key_group: int
    last_key_group: int
    seqno: SeqNo
    """Changes below this number count."""
    table: str
    start: SeqNo = SeqNo(0)
    """Number of its first change; 0 unless it had inherited itself."""
    materialization: MaterializationRef | None = None
    log: tuple[LogRange, ...] = ()
    inline: tuple[bytes, ...] = ()

    @property
    def upto(self) -> SeqNo:
        """Where the replay of its log begins."""
        return self.materialization.upto if self.materialization is not None else self.start


class AheadOfWatermark(msgspec.Struct, frozen=True, array_like=True):
    """Key groups, both ends included, whose timers have fired up to a later time than the
    subtask's watermark, or are firing: a rescale took them over from a subtask that was further.
    """

    first_key_group: int
    last_key_group: int
    watermark: int


class OperatorPiece(msgspec.Struct, frozen=True, array_like=True):
    """Operator state of one subtask under one name."""

    operator: str
    name: str
    kind: Literal["broadcast"]
    entries: tuple[bytes, ...]
    """msgpack: pairs of key and value."""


class SubtaskState(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything one subtask needs to come back."""

    index: int
    first_key_group: int
    last_key_group: int
    seqno: SeqNo
    """Changes logged when the barrier passed; the log below reaches exactly to here."""
    table: str
    materialization: MaterializationRef | None = None
    log: tuple[LogRange, ...] = ()
    inline: tuple[bytes, ...] = ()
    """Sealed blocks small enough to live in the manifest, after the last range of `log`."""
    watermark: int | None = None
    transactions: tuple[bytes, ...] = ()
    """Pre-committed sink transactions that this checkpoint commits."""
    finished: bool = False
    """The operator's `finish` ran before this checkpoint."""
    advancing: int | None = None
    """A watermark whose timers had fired in part when the barrier passed."""
    ahead: tuple[AheadOfWatermark, ...] = ()
    """Key groups that are further than `watermark`; ascending, without overlap."""
    in_flight: InFlightRef | None = None
    barrier: BarrierFacts | None = None
    start: SeqNo = SeqNo(0)
    """Number of its first change; above 0 when nothing before it is needed, or it is inherited."""
    inherited: tuple[InheritedState, ...] = ()
    """State of earlier subtasks below its own log, until its own first materialization; where
    two hold the same key groups the later one wins."""
    operator_state: tuple[OperatorPiece, ...] = ()
    """State that belongs to no key."""
    updates: int = 0
    """Puts, deletes and appends that the changes combine, since the state was first written."""

    @property
    def upto(self) -> SeqNo:
        """Where the replay of its own log begins."""
        return self.materialization.upto if self.materialization is not None else self.start

    @property
    def own(self) -> InheritedState:
        """The state without what was inherited, in the form in which others inherit it."""
        return InheritedState(
            subtask=self.index,
            first_key_group=self.first_key_group,
            last_key_group=self.last_key_group,
            seqno=self.seqno,
            table=self.table,
            start=self.start,
            materialization=self.materialization,
            log=self.log,
            inline=self.inline,
        )

    @property
    def layers(self) -> tuple[InheritedState, ...]:
        """The inherited states and its own one, in the order in which a restore applies them."""
        return (*self.inherited, self.own)

    @property
    def ranges(self) -> tuple[LogRange, ...]:
        """All parts of segments that it needs: for inherited and own log and in-flight data."""
        log = chain.from_iterable(layer.log for layer in self.layers)
        return (*log, *self.in_flight.log) if self.in_flight is not None else tuple(log)

    @property
    def materializations(self) -> list[MaterializationRef]:
        """The materialized tables of all layers, the inherited ones included."""
        return [s.materialization for s in self.layers if s.materialization is not None]


class OperatorState(msgspec.Struct, frozen=True, omit_defaults=True):
    """One operator: its states and its subtasks, which partition the key groups."""

    id: str
    key_groups: int
    states: tuple[StateInfo, ...]
    subtasks: tuple[SubtaskState, ...]
    chain: tuple[str, ...] | None = None
    """The operators that its tasks run after it; written when all of its subtasks have finished."""
    key_types: tuple[str, ...] = ()
    """Types of the keys it has state for; empty: not known."""
    source_types: tuple[str, ...] = ()
    """The source's class and its base classes, in method resolution order; empty: not known."""
    sink: str = ""
    """The sink that its tasks end in, whose transactions they hold; empty: none, or not known."""
    sink_types: tuple[str, ...] = ()
    """The sink's class and its base classes, in method resolution order."""
    meaning: tuple[str, ...] = ()
    """What decides the meaning of its rows and is in none of them, as `name: fact`."""
    formats: dict[str, int] = {}
    """Formats above the first of its source's positions and its sink's transactions."""

    def with_all(self, **changes: Any) -> "OperatorState":
        """The operator with these fields in the states of all its subtasks."""
        replace = msgspec.structs.replace
        return replace(self, subtasks=tuple(replace(s, **changes) for s in self.subtasks))


def subtasks_of(operators: Iterable[OperatorState]) -> Iterator[tuple[OperatorState, SubtaskState]]:
    """All subtasks of operators, each with its operator."""
    for operator in operators:
        for subtask in operator.subtasks:
            yield operator, subtask


class Start(msgspec.Struct, frozen=True, tag_field="kind", tag="start"):
    """A new generation takes over; it stays until a newer generation has started."""

    slot: Slot
    author: Author
    created_ms: int
    job: str
    format: int = FORMAT_VERSION
    history: SlotRanges = ()
    """The slots of checkpoints below this one that count."""
    moved_to: str = ""
    """The checkpoint directory of the Spark query that the job became; empty: it goes on here."""


class Checkpoint(msgspec.Struct, frozen=True, tag_field="kind", tag="checkpoint"):
    """A completed checkpoint."""

    slot: Slot
    author: Author
    checkpoint_id: CheckpointId
    created_ms: int
    job: str
    operators: tuple[OperatorState, ...]
    final: bool = False
    """The job ended with this checkpoint: inputs exhausted, all operators finished."""
    format: int = FORMAT_VERSION
    history: SlotRanges = ()
    """As in a start: the older checkpoints that are retained now that this one completed."""
    formats: dict[str, int] = {}
    """Formats above the first of all that it refers to, by kind."""
    before_end: tuple[OperatorState, ...] = ()
    """From the end of the input on: the state of all operators before anything was emitted only
    because the input has ended. A start after the end goes on from it."""

    @property
    def number(self) -> Slot:
        """What commands, reports and the page call the checkpoint by."""
        return self.slot

    def subtasks(self) -> Iterator[tuple[OperatorState, SubtaskState]]:
        """All subtasks with their operator."""
        return subtasks_of(self.operators)

    def layers(self) -> Iterator[tuple[OperatorState, InheritedState]]:
        """The layers of all subtasks' states, with their operator."""
        for operator, subtask in self.subtasks():
            for layer in subtask.layers:
                yield operator, layer

    def stored_subtasks(self) -> Iterator[tuple[OperatorState, SubtaskState]]:
        """All subtasks that it needs the objects of, those before the end first."""
        return subtasks_of((*self.before_end, *self.operators))

    def materializations(self) -> list[MaterializationRef]:
        """The materializations of all that is stored, each once: several may have the same one."""
        refs = chain.from_iterable(
            subtask.materializations for _, subtask in self.stored_subtasks()
        )
        return list(dict.fromkeys(refs))


class Savepoint(Checkpoint, frozen=True, tag_field="kind", tag="savepoint", kw_only=True):
    """A checkpoint that was requested by name; retention never drops it."""

    name: str
    savepoint_format: SavepointFormat
    stop: bool = False
    """The job ended with it, and can go on from it."""


def is_canonical(checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint is a savepoint with rows, which are no part of the log of changes."""
    return isinstance(checkpoint, Savepoint) and checkpoint.savepoint_format == "canonical"


Entry = Start | Checkpoint | Savepoint
"""What a slot can hold."""


def encode_entry(entry: Entry) -> bytes:
    """The bytes stored in a slot."""
    return seal_document(entry)


def decode_entry(data: bytes, name: str) -> Entry:
    """Check and decode a slot's bytes; raises CorruptObjectError and FormatVersionError."""
    entry: Entry = open_document(data, name, Entry)  # type: ignore[arg-type]  # a union
    if isinstance(entry, Checkpoint):
        check_formats(f"object {name}", entry.formats, FORMATS)
    return entry


def decode_slot(data: bytes, slot: Slot) -> Entry:
    """Decode a slot's bytes; raises as `decode_entry`, and CorruptObjectError for another's."""
    name = object_names.checkpoint(slot)
    entry = decode_entry(data, name)
    if entry.slot != slot:  # a copy, which would restore another checkpoint in silence
        raise CorruptObjectError(
            f"object {name}",
            expected=f"the manifest of checkpoint {slot}",
            found=f"that of checkpoint {entry.slot}",
            action=f"bring it back from a backup, or {OLDER_CHECKPOINT}",
        )
    return entry
