"""What checkpoints say of how their barriers passed."""

from typing import Any

from tidelog.checkpoint.manifest import Checkpoint, OperatorState, SubtaskState
from tidelog.cli.output import size


def in_flight_bytes(state: SubtaskState) -> int:
    """Bytes of in-flight data of a subtask, encoded."""
    return state.in_flight.bytes if state.in_flight is not None else 0


def alignment_line(operator: OperatorState) -> str | None:
    """How the barrier passed an operator; None when no subtask says."""
    facts = [state.barrier for state in operator.subtasks if state.barrier is not None]
    if not facts:
        return None
    delay = max(fact.start_delay_ms for fact in facts)
    alignment = max(fact.alignment_ms for fact in facts)
    kind = "unaligned" if any(fact.unaligned for fact in facts) else "aligned"
    held = sum(map(in_flight_bytes, operator.subtasks))
    in_flight = f", {size(held)} in flight" if held else ""
    return f"  {kind}{in_flight}; start delay {delay} ms, alignment {alignment} ms"


def is_unaligned(checkpoint: Checkpoint) -> bool:
    """A barrier of the checkpoint overtook records."""
    facts = [state.barrier for _, state in checkpoint.subtasks()]
    return any(fact is not None and fact.unaligned for fact in facts)


def alignment_fields(state: SubtaskState) -> dict[str, Any]:
    """The same of a subtask, for --json."""
    facts, in_flight = state.barrier, state.in_flight
    return {
        "unaligned": facts.unaligned if facts is not None else None,
        "start_delay_ms": facts.start_delay_ms if facts is not None else None,
        "alignment_ms": facts.alignment_ms if facts is not None else None,
        "in_flight_buffers": in_flight.buffers if in_flight is not None else 0,
        "in_flight_bytes": in_flight_bytes(state),
    }
