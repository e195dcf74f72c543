"""How large a checkpoint is, how much of it is new, and what it holds.

Invariants: a full size is what a restore reads; an incremental size is the part of it that the
checkpoint before does not hold, so it is never larger than the full one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.manifest import (
    BarrierFacts,
    Checkpoint,
    InheritedState,
    MaterializationRef,
    SubtaskState,
)
from tidelog.metrics import gauge

SharedFiles = Callable[[str], Mapping[str, int]]
"""Shared table files of a descriptor, by object, and their bytes."""


@dataclass(frozen=True, slots=True)
class CheckpointSizes:
    """Bytes of the two parts of a checkpoint."""

    log_full_bytes: int = gauge(
        "checkpoint_log_full_bytes",
        "Size of the log that a restore of the last checkpoint reads.",
        watch="Grows until the next materialization; without end when there is none.",
    )
    log_incremental_bytes: int = gauge(
        "checkpoint_log_incremental_bytes",
        "Size of the log of the last checkpoint that the checkpoint before does not hold.",
        watch="What a checkpoint adds.",
    )
    materialized_full_bytes: int = gauge(
        "checkpoint_materialized_full_bytes",
        "Size of the table files that a restore of the last checkpoint reads.",
        watch="What a restore fetches besides the log.",
    )
    materialized_incremental_bytes: int = gauge(
        "checkpoint_materialized_incremental_bytes",
        "Size of the table files of the last checkpoint that the checkpoint before does not hold.",
        watch="How much of the tables changes between materializations.",
    )


@dataclass(frozen=True, slots=True)
class CheckpointContents:
    """What a checkpoint holds over all subtasks, and how its barriers passed them."""

    replay_changes: int = gauge(
        "checkpoint_replay_changes",
        "Changes of the log that a restore of the last checkpoint replays.",
        watch="Together with the speed of the replay it is the length of a restart.",
    )
    inline_bytes: int = gauge(
        "checkpoint_inline_bytes",
        "Log in the last checkpoint's manifest, because it was too small for a segment.",
        watch="Large manifests: lower `upload.inline_bytes`.",
    )
    transactions: int = gauge(
        "checkpoint_transactions",
        "Sink transactions that the last checkpoint committed.",
        watch="What sinks have to commit per checkpoint.",
    )
    unaligned_subtasks: int = gauge(
        "checkpoint_unaligned_subtasks",
        "Subtasks in which the last checkpoint's barrier overtook records.",
        watch="Above 0 the job is back-pressured and unaligned checkpoints help.",
    )
    start_delay_s: float = gauge(
        "checkpoint_start_delay_seconds",
        "Time from the last checkpoint's trigger to its first barrier at a subtask; the longest.",
        watch="Long: barriers wait for records, that is back-pressure.",
        default=0.0,
    )
    alignment_s: float = gauge(
        "checkpoint_alignment_seconds",
        "Time from the first barrier of the last checkpoint at a subtask to its snapshot; the "
        "longest.",
        watch="Long: one input of a task is slower than the others. Try unaligned checkpoints.",
        default=0.0,
    )
    in_flight_buffers: int = gauge(
        "checkpoint_in_flight_buffers",
        "Buffers of records in flight that the last checkpoint holds.",
        watch="What unaligned checkpoints store on top of the state.",
    )
    in_flight_bytes: int = gauge(
        "checkpoint_in_flight_bytes",
        "Size of the records in flight that the last checkpoint holds, before compression.",
        watch="Large: smaller buffers, or fewer of them.",
    )


def barriers_of(checkpoint: Checkpoint) -> list[BarrierFacts]:
    """How the barriers passed the subtasks that say so."""
    return [state.barrier for _, state in checkpoint.subtasks() if state.barrier is not None]


def contents_of(checkpoint: Checkpoint) -> CheckpointContents:
    changes = inline = transactions = unaligned = buffers = buffered_bytes = 0
    start_delay_ms = alignment_ms = 0
    for _, state in checkpoint.subtasks():
        changes += replay_changes(state)
        inline += inline_bytes(state)
        transactions += len(state.transactions)
        if state.barrier is not None:
            unaligned += state.barrier.unaligned
            start_delay_ms = max(start_delay_ms, state.barrier.start_delay_ms)
            alignment_ms = max(alignment_ms, state.barrier.alignment_ms)
        if state.in_flight is not None:
            buffers += state.in_flight.buffers
            buffered_bytes += state.in_flight.bytes
    return CheckpointContents(
        replay_changes=changes,
        inline_bytes=inline,
        transactions=transactions,
        unaligned_subtasks=unaligned,
        start_delay_s=start_delay_ms / 1000,
        alignment_s=alignment_ms / 1000,
        in_flight_buffers=buffers,
        in_flight_bytes=buffered_bytes,
    )


def checkpoint_sizes(
    new: Checkpoint, previous: Checkpoint | None, shared: SharedFiles
) -> CheckpointSizes:
    """Sizes of `new` by itself and compared to `previous`.

    Log within the manifest is new every time: it is written again.
    """
    previous_lengths: dict[tuple[str, int], int] = {}
    for _, layer in previous.layers() if previous is not None else ():
        for part in layer.log:
            previous_lengths[part.segment, part.offset] = part.length
    ranges: set[LogRange] = set()  # subtasks that inherit from the same one have the same ranges
    inline = 0
    for _, layer in new.layers():
        ranges.update(layer.log)
        inline += sum(map(len, layer.inline))
    full = unchanged = 0
    for part in ranges:
        full += part.length
        unchanged += min(part.length, previous_lengths.get((part.segment, part.offset), 0))
    refs = new.materializations()
    earlier = previous.materializations() if previous is not None else []
    return CheckpointSizes(
        log_full_bytes=full + inline,
        log_incremental_bytes=full - unchanged + inline,
        materialized_full_bytes=sum(ref.table_bytes for ref in refs),
        materialized_incremental_bytes=_new_bytes(refs, earlier, shared),
    )


def layer_bytes(layer: InheritedState) -> int:
    """Bytes that a restore fetches of a layer besides the manifest."""
    table = layer.materialization.table_bytes if layer.materialization is not None else 0
    return table + sum(part.length for part in layer.log)


def replay_changes(state: SubtaskState) -> int:
    """Changes that a restore of a subtask replays."""
    return sum(layer.seqno - layer.upto for layer in state.layers)


def inline_bytes(state: SubtaskState) -> int:
    """Bytes of a subtask's log that lie in the manifest."""
    return sum(sum(map(len, layer.inline)) for layer in state.layers)


def _new_bytes(
    refs: list[MaterializationRef], before: list[MaterializationRef], shared: SharedFiles
) -> int:
    descriptors = {ref.descriptor for ref in before}
    previous_files = set[str]().union(*map(shared, descriptors))
    new_bytes = 0
    for ref in refs:
        if ref.descriptor not in descriptors:
            files = shared(ref.descriptor)
            unchanged = files.keys() & previous_files
            new_bytes += ref.table_bytes - sum(map(files.__getitem__, unchanged))
    return new_bytes
