"""What checkpoints hold, in figures, for `tidelog checkpoints` and the operators' page.

A field is declared here once; docs/reference/cli-json.md is made from the declarations. What is
not known, or not there in a kind, is null. Sizes are bytes.
"""

from typing import Any

import msgspec

from tidelog.catalog.audit import SlotKind
from tidelog.catalog.inventory import Slots
from tidelog.checkpoint.finished import fully_finished
from tidelog.checkpoint.manifest import (
    Checkpoint,
    Entry,
    InheritedState,
    OperatorState,
    Savepoint,
    Start,
    SubtaskState,
)
from tidelog.checkpoint.sizes import contents_of, inline_bytes, layer_bytes, replay_changes
from tidelog.errors import error_fields
from tidelog.ids import Slot


class SlotSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored under a number: a start, a checkpoint or a savepoint."""

    checkpoint: int
    """The checkpoint's number; a start has a number as well."""
    kind: SlotKind
    generation: int | None = None
    attempt: int | None = None
    """Counts the attempts at checkpoints, also failed ones; events name it. This and the following
    are null unless it is a checkpoint."""
    created_ms: int | None = None
    job: str | None = None
    manifest_bytes: int = 0
    """Size of its object."""
    log_bytes: int | None = None
    """Log in segments that a restore reads."""
    materialized_bytes: int | None = None
    """Table files that a restore reads."""
    inline_bytes: int | None = None
    """Log in the manifest itself."""
    in_flight_bytes: int | None = None
    """Records that barriers had overtaken, encoded."""
    unaligned: bool | None = None
    """Some barrier overtook records."""
    final: bool | None = None
    """The job ended with this checkpoint."""
    name: str | None = None
    """Of a savepoint."""
    savepoint_format: str | None = None
    """`canonical` or `native`."""
    error: dict[str, Any] | None = None
    """Why it is unreadable: the fields of an error."""


class StateSummary(msgspec.Struct, frozen=True):
    """A registered state."""

    id: int
    name: str
    kind: str
    schema: tuple[str, ...]
    ttl_ms: int | None


class OperatorStateSummary(msgspec.Struct, frozen=True):
    """State without a key."""

    operator: str
    name: str
    kind: str
    """`list`, `union` or `broadcast`."""
    entries: int
    """Number of entries."""


class InheritedSummary(msgspec.Struct, frozen=True):
    """What a subtask builds on of an earlier shape of the operator, until it materializes."""

    subtask: int
    """Its number then."""
    first_key_group: int
    last_key_group: int
    descriptor: str | None
    bytes: int
    """What a restore fetches of it."""


class SubtaskSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint holds of a subtask."""

    index: int
    first_key_group: int
    last_key_group: int
    """The last one included."""
    seqno: int
    """Changes made until the checkpoint."""
    table: str
    """Kind of the table."""
    descriptor: str | None
    """Object that describes the materialization."""
    materialized_upto: int
    """Changes below are in the table files."""
    materialized_bytes: int
    """Size of the table files."""
    replay_changes: int
    """Changes that a restore replays."""
    log_ranges: int
    """Parts of segments."""
    log_bytes: int
    inline_blocks: int
    """Blocks of log in the manifest."""
    inline_bytes: int
    watermark: int | None
    """9223372036854775807 at the end of the data."""
    transactions: int
    """Sink transactions that the checkpoint commits."""
    finished: bool
    """The operator ended before the checkpoint."""
    operator_state: tuple[OperatorStateSummary, ...]
    inherited: tuple[InheritedSummary, ...]
    unaligned: bool | None
    """The barrier overtook records, in an input or an output."""
    start_delay_ms: int | None
    """From the trigger to the first barrier that the subtask saw."""
    alignment_ms: int | None
    """From then to the snapshot."""
    in_flight_buffers: int
    """Buffers of records that the barrier had overtaken."""
    in_flight_bytes: int


class OperatorSummary(msgspec.Struct, frozen=True):
    """What a checkpoint holds of an operator."""

    id: str
    key_groups: int
    """Number of key groups of the operator."""
    finished: bool
    """All its subtasks have finished: it does not run again."""
    chain: tuple[str, ...] | None
    """The operators that finished with it, in its tasks; null before."""
    states: tuple[StateSummary, ...]
    subtasks: tuple[SubtaskSummary, ...]


class CheckpointSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint by operator and subtask."""

    checkpoint: int
    """The number of the checkpoint."""
    generation: int
    attempt: int
    created_ms: int
    job: str
    final: bool
    """The job ended with this checkpoint."""
    name: str | None
    """Of a savepoint."""
    savepoint_format: str | None
    """`canonical` or `native`."""
    operators: tuple[OperatorSummary, ...]


def slot_summary(slots: Slots, slot: Slot) -> SlotSummary:
    """A slot that is stored, readable or not."""
    size, entry = slots.sizes[slot], slots.entries.get(slot)
    if entry is None:
        error = slots.unreadable.get(slot)
        fields = None if error is None else error_fields(error)
        return SlotSummary(checkpoint=slot, kind="unreadable", manifest_bytes=size, error=fields)
    return entry_summary(entry, size)


def entry_summary(entry: Entry, size: int) -> SlotSummary:
    """What a slot of `size` bytes holds."""
    start = SlotSummary(
        checkpoint=entry.slot,
        kind="move" if isinstance(entry, Start) and entry.moved_to else "start",
        generation=entry.author.generation,
        created_ms=entry.created_ms,
        job=entry.job,
        manifest_bytes=size,
    )
    if not isinstance(entry, Checkpoint):
        return start
    states = [subtask for _, subtask in entry.subtasks()]
    contents = contents_of(entry)
    name, savepoint_format = _savepoint(entry)
    return msgspec.structs.replace(
        start,
        kind="savepoint" if isinstance(entry, Savepoint) else "checkpoint",
        attempt=entry.checkpoint_id,
        log_bytes=sum(map(_log_bytes, states)),
        materialized_bytes=sum(map(_materialized_bytes, states)),
        inline_bytes=contents.inline_bytes,
        in_flight_bytes=contents.in_flight_bytes,
        unaligned=contents.unaligned_subtasks > 0,
        final=entry.final,
        name=name,
        savepoint_format=savepoint_format,
    )


def checkpoint_summary(checkpoint: Checkpoint) -> CheckpointSummary:
    name, savepoint_format = _savepoint(checkpoint)
    return CheckpointSummary(
        checkpoint=checkpoint.slot,
        generation=checkpoint.author.generation,
        attempt=checkpoint.checkpoint_id,
        created_ms=checkpoint.created_ms,
        job=checkpoint.job,
        final=checkpoint.final,
        name=name,
        savepoint_format=savepoint_format,
        operators=tuple(map(_operator, checkpoint.operators)),
    )


def _operator(operator: OperatorState) -> OperatorSummary:
    return OperatorSummary(
        operator.id,
        operator.key_groups,
        fully_finished(operator),
        operator.chain,
        tuple(StateSummary(s.id, s.name, s.kind, s.schema, s.ttl_ms) for s in operator.states),
        tuple(map(_subtask, operator.subtasks)),
    )


def _subtask(state: SubtaskState) -> SubtaskSummary:
    barrier, in_flight = state.barrier, state.in_flight
    log_ranges = inline_blocks = 0
    for layer in state.layers:
        log_ranges += len(layer.log)
        inline_blocks += len(layer.inline)
    return SubtaskSummary(
        index=state.index,
        first_key_group=state.first_key_group,
        last_key_group=state.last_key_group,
        seqno=state.seqno,
        table=state.table,
        descriptor=_descriptor(state.own),
        materialized_upto=state.upto,
        materialized_bytes=_materialized_bytes(state),
        replay_changes=replay_changes(state),
        log_ranges=log_ranges,
        log_bytes=_log_bytes(state),
        inline_blocks=inline_blocks,
        inline_bytes=inline_bytes(state),
        watermark=state.watermark,
        transactions=len(state.transactions),
        finished=state.finished,
        operator_state=tuple(
            OperatorStateSummary(piece.operator, piece.name, piece.kind, len(piece.entries))
            for piece in state.operator_state
        ),
        inherited=tuple(map(_inherited, state.inherited)),
        unaligned=barrier.unaligned if barrier is not None else None,
        start_delay_ms=barrier.start_delay_ms if barrier is not None else None,
        alignment_ms=barrier.alignment_ms if barrier is not None else None,
        in_flight_buffers=in_flight.buffers if in_flight is not None else 0,
        in_flight_bytes=in_flight.bytes if in_flight is not None else 0,
    )


def _inherited(layer: InheritedState) -> InheritedSummary:
    groups = layer.first_key_group, layer.last_key_group
    return InheritedSummary(layer.subtask, *groups, _descriptor(layer), layer_bytes(layer))


def _descriptor(layer: InheritedState) -> str | None:
    return layer.materialization.descriptor if layer.materialization is not None else None


def _materialized_bytes(state: SubtaskState) -> int:
    return sum(ref.table_bytes for ref in state.materializations)


def _log_bytes(state: SubtaskState) -> int:
    log_bytes = 0
    for layer in state.layers:
        log_bytes += sum(part.length for part in layer.log)
    return log_bytes


def _savepoint(entry: Checkpoint) -> tuple[str | None, str | None]:
    """Name and format of a savepoint; of another checkpoint None."""
    return (entry.name, entry.savepoint_format) if isinstance(entry, Savepoint) else (None, None)
