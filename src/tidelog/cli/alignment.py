"""Options of `tidelog run` about barriers, and what checkpoints say of them."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tidelog.checkpoint.manifest import Checkpoint, OperatorState, SubtaskState
from tidelog.cli.durations import duration
from tidelog.cli.output import size

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--unaligned",
        type=click.Choice(["off", "timeout", "always"]),
        default="timeout",
        show_default=True,
        help="Whether barriers overtake records, which are then stored with the checkpoint: never, "
        "when a checkpoint takes long, or always.",
    ),
    click.option(
        "--aligned-timeout",
        type=duration,
        default="30s",
        show_default=True,
        help="How long a checkpoint may take before its barriers overtake.",
    ),
    click.option(
        "--drop-in-flight",
        is_flag=True,
        help="Restore without the records that barriers had overtaken: THEY ARE LOST.",
    ),
)


def alignment_options(command: F) -> F:
    """Add --unaligned, --aligned-timeout and --drop-in-flight to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


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
