"""How large a checkpoint is, how much of it is new, and what it holds.

Invariants: a full size is what a restore reads; an incremental size is the part of it that the
checkpoint before does not hold, so it is never larger than the full one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tidelog.checkpoint.manifest import Checkpoint, InheritedState, MaterializationRef, SubtaskState
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


def contents_of(checkpoint: Checkpoint) -> CheckpointContents:
    states = [state for _, state in checkpoint.subtasks()]
    barriers = [state.barrier for state in states if state.barrier is not None]
    in_flight = [state.in_flight for state in states if state.in_flight is not None]
    return CheckpointContents(
        replay_changes=sum(map(replay_changes, states)),
        inline_bytes=sum(map(inline_bytes, states)),
        transactions=sum(len(state.transactions) for state in states),
        unaligned_subtasks=sum(facts.unaligned for facts in barriers),
        start_delay_s=max((facts.start_delay_ms for facts in barriers), default=0) / 1000,
        alignment_s=max((facts.alignment_ms for facts in barriers), default=0) / 1000,
        in_flight_buffers=sum(ref.buffers for ref in in_flight),
        in_flight_bytes=sum(ref.bytes for ref in in_flight),
    )


def checkpoint_sizes(
    new: Checkpoint, previous: Checkpoint | None, shared: SharedFiles
) -> CheckpointSizes:
    """Sizes of `new` by itself and compared to `previous`.

    Log within the manifest is new every time: it is written again.
    """
    states = [layer for _, layer in new.layers()]
    before = [layer for _, layer in previous.layers()] if previous is not None else []
    previous_lengths = {(r.segment, r.offset): r.length for state in before for r in state.log}
    # Several subtasks that inherit from one name the same objects.
    ranges = dict.fromkeys(log_range for state in states for log_range in state.log)
    inline = sum(len(block) for state in states for block in state.inline)
    full = sum(r.length for r in ranges)
    unchanged = sum(min(r.length, previous_lengths.get((r.segment, r.offset), 0)) for r in ranges)
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
    return sum(len(block) for layer in state.layers for block in layer.inline)


def _new_bytes(
    refs: list[MaterializationRef], before: list[MaterializationRef], shared: SharedFiles
) -> int:
    descriptors = {ref.descriptor for ref in before}
    previous_files = {name for descriptor in descriptors for name in shared(descriptor)}
    return sum(
        ref.table_bytes
        - sum(n for name, n in shared(ref.descriptor).items() if name in previous_files)
        for ref in refs
        if ref.descriptor not in descriptors
    )
