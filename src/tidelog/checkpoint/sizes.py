"""How large a checkpoint is, and how much of it is new.

Invariants: a full size is what a restore reads; an incremental size is the part of it that the
checkpoint before does not hold, so it is never larger than the full one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tidelog.checkpoint.manifest import Checkpoint, InheritedState, MaterializationRef

SharedFiles = Callable[[str], Mapping[str, int]]
"""Shared table files of a descriptor, by object, and their bytes."""


@dataclass(frozen=True, slots=True)
class CheckpointSizes:
    """Bytes of the two parts of a checkpoint."""

    log_full_bytes: int
    log_incremental_bytes: int
    materialized_full_bytes: int
    materialized_incremental_bytes: int


def checkpoint_sizes(
    new: Checkpoint, previous: Checkpoint | None, shared: SharedFiles
) -> CheckpointSizes:
    """Sizes of `new` by itself and compared to `previous`.

    Log within the manifest is new every time: it is written again.
    """
    states = [layer for _, layer in new.layers()]
    before = [layer for _, layer in previous.layers()] if previous is not None else []
    known = {(r.segment, r.offset): r.length for state in before for r in state.log}
    # Several subtasks that inherit from one name the same objects.
    ranges = dict.fromkeys(log_range for state in states for log_range in state.log)
    inline = sum(len(block) for state in states for block in state.inline)
    full = sum(r.length for r in ranges)
    kept = sum(min(r.length, known.get((r.segment, r.offset), 0)) for r in ranges)
    refs = _materializations(states)
    return CheckpointSizes(
        log_full_bytes=full + inline,
        log_incremental_bytes=full - kept + inline,
        materialized_full_bytes=sum(ref.table_bytes for ref in refs),
        materialized_incremental_bytes=_new_bytes(refs, _materializations(before), shared),
    )


def layer_bytes(layer: InheritedState) -> int:
    """Bytes that a restore fetches of a layer besides the manifest."""
    table = layer.materialization.table_bytes if layer.materialization is not None else 0
    return table + sum(part.length for part in layer.log)


def _materializations(states: list[InheritedState]) -> list[MaterializationRef]:
    return list(dict.fromkeys(s.materialization for s in states if s.materialization is not None))


def _new_bytes(
    refs: list[MaterializationRef], before: list[MaterializationRef], shared: SharedFiles
) -> int:
    descriptors = {ref.descriptor for ref in before}
    stored = {name for descriptor in descriptors for name in shared(descriptor)}
    return sum(
        ref.table_bytes - sum(n for name, n in shared(ref.descriptor).items() if name in stored)
        for ref in refs
        if ref.descriptor not in descriptors
    )
