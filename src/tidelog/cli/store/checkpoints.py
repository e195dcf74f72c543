"""`tidelog checkpoints`: what slots a store has and what a checkpoint holds."""

from typing import Any

import click
import msgspec

from tidelog.catalog.inventory import Slots, find_checkpoint, read_slots
from tidelog.checkpoint.finished import fully_finished
from tidelog.checkpoint.manifest import Checkpoint, OperatorState, Savepoint, SubtaskState
from tidelog.checkpoint.sizes import inline_bytes, layer_bytes, replay_changes
from tidelog.cli.output import error_fields
from tidelog.cli.store.checkpoints_drop import command as drop_command
from tidelog.cli.store.options import EXIT_OK, EXIT_PROBLEM, StoreCommand, on_store, slot_number
from tidelog.cli.values import age, size
from tidelog.ids import Slot
from tidelog.state.event_time import MAX_WATERMARK


class SlotRow(msgspec.Struct, frozen=True):
    """A slot; sizes in bytes, what a kind of slot does not have is null."""

    slot: int
    kind: str
    generation: int | None = None
    checkpoint_id: int | None = None
    created_ms: int | None = None
    job: str | None = None
    manifest_bytes: int = 0
    log_bytes: int | None = None
    materialized_bytes: int | None = None
    inline_bytes: int | None = None
    in_flight_bytes: int | None = None
    unaligned: bool | None = None
    final: bool | None = None
    name: str | None = None
    savepoint_format: str | None = None
    error: dict[str, Any] | None = None


@click.group("checkpoints")
def command() -> None:
    """List checkpoints, show what they hold, drop savepoints."""


command.add_command(drop_command)


@command.command("list")
@on_store
async def list_command(invocation: StoreCommand) -> int:
    """List the slots at URL, oldest first.

    Exits with 1 when one of them cannot be read.
    """
    slots = await read_slots(invocation.store)
    rows = [_row(slots, slot) for slot in sorted(slots.sizes)]
    output = invocation.output
    if output.as_json:
        output.document({"url": invocation.store.url, "slots": rows})
    else:
        now = invocation.effects.clock.now_ms()
        output.table(
            ["slot", "kind", "gen", "id", "age", "manifest", "log", "table", "inline", ""],
            [_cells(row, now) for row in rows],
        )
        for slot, error in sorted(slots.unreadable.items()):
            output.line(f"slot {slot}: {error}")
    return EXIT_PROBLEM if slots.unreadable else EXIT_OK


def _row(slots: Slots, slot: Slot) -> SlotRow:
    entry = slots.entries.get(slot)
    manifest_bytes = slots.sizes[slot]
    if entry is None:
        error = error_fields(slots.unreadable[slot])
        return SlotRow(slot, "unreadable", manifest_bytes=manifest_bytes, error=error)
    row = SlotRow(
        slot,
        kind="start",
        generation=entry.author.generation,
        created_ms=entry.created_ms,
        job=entry.job,
        manifest_bytes=manifest_bytes,
    )
    if not isinstance(entry, Checkpoint):
        return row
    states = [subtask for _, subtask in entry.subtasks()]
    return msgspec.structs.replace(
        row,
        kind="savepoint" if isinstance(entry, Savepoint) else "checkpoint",
        checkpoint_id=entry.checkpoint_id,
        log_bytes=sum(map(_log_bytes, states)),
        materialized_bytes=sum(map(_materialized_bytes, states)),
        inline_bytes=sum(map(inline_bytes, states)),
        in_flight_bytes=sum(map(in_flight_bytes, states)),
        unaligned=is_unaligned(entry),
        final=entry.final,
        name=entry.name if isinstance(entry, Savepoint) else None,
        savepoint_format=entry.savepoint_format if isinstance(entry, Savepoint) else None,
    )


def _cells(row: SlotRow, now_ms: int) -> list[str | int | None]:
    figures = (row.manifest_bytes, row.log_bytes, row.materialized_bytes, row.inline_bytes)
    return [
        row.slot,
        row.kind,
        row.generation,
        row.checkpoint_id,
        None if row.created_ms is None else age(now_ms - row.created_ms),
        *(None if figure is None else size(figure) for figure in figures),
        ", ".join(filter(None, _remarks(row))),
    ]


def _remarks(row: SlotRow) -> list[str | None]:
    final, unaligned = "final" if row.final else None, "unaligned" if row.unaligned else None
    return [final, unaligned, row.name, row.savepoint_format]


@command.command("show")
@on_store
@click.argument("slot", type=slot_number, default="latest")
async def show_command(invocation: StoreCommand, slot: Slot | None) -> int:
    """Show a checkpoint per operator and subtask.

    SLOT is a slot's number, or latest. The table of a subtask has its changes below "upto"; a
    restore replays the rest from the log.
    """
    checkpoint = await find_checkpoint(invocation.store, slot)
    output = invocation.output
    if output.as_json:
        output.document({"url": invocation.store.url, **_checkpoint_fields(checkpoint)})
        return EXIT_OK
    output.line(
        f"slot {checkpoint.slot}: checkpoint {checkpoint.checkpoint_id} of job {checkpoint.job!r}, "
        f"generation {checkpoint.author.generation}{', final' if checkpoint.final else ''}"
    )
    if isinstance(checkpoint, Savepoint):
        output.line(f"savepoint {checkpoint.name}, {checkpoint.savepoint_format}")
    for operator in checkpoint.operators:
        output.line()
        finished = _finished(operator)
        output.line(f"operator {operator.id}, {operator.key_groups} key groups{finished}")
        for state in operator.states:
            output.line(
                f"  state {state.id} {state.name}: {state.kind} ({'; '.join(state.schema)})"
            )
        if (alignment := alignment_line(operator)) is not None:
            output.line(alignment)
        output.table(_SUBTASK_COLUMNS, [_subtask_cells(subtask) for subtask in operator.subtasks])
        for subtask in operator.subtasks:
            if subtask.inherited:
                output.line(f"  subtask {subtask.index} builds on {_inheritance(subtask)}")
    return EXIT_OK


def _finished(operator: OperatorState) -> str:
    """What of an operator has finished, in words."""
    if fully_finished(operator):
        return ", finished" + "".join(f", and {name}" for name in operator.chain or ())
    done = [str(subtask.index) for subtask in operator.subtasks if subtask.finished]
    return f", finished in part: subtask {', '.join(done)}" if done else ""


def _inheritance(state: SubtaskState) -> str:
    """The subtasks of an earlier shape whose state it still needs, in words."""
    parts = (
        f"key groups {layer.first_key_group}-{layer.last_key_group} of subtask {layer.subtask}"
        for layer in state.inherited
    )
    return ", ".join(dict.fromkeys(parts)) + " as it was before"


_SUBTASK_COLUMNS = [
    *("subtask", "groups", "changes", "upto", "table"),
    *("replay", "log", "inline", "watermark", "finished"),
]


def _subtask_cells(state: SubtaskState) -> list[str | int | None]:
    return [
        state.index,
        f"{state.first_key_group}-{state.last_key_group}",
        state.seqno,
        state.upto,
        size(_materialized_bytes(state)),
        replay_changes(state),
        size(_log_bytes(state)),
        size(inline_bytes(state)),
        "end" if state.watermark == MAX_WATERMARK else state.watermark,
        "yes" if state.finished else "no",
    ]


def _checkpoint_fields(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "slot": checkpoint.slot,
        "checkpoint_id": checkpoint.checkpoint_id,
        "generation": checkpoint.author.generation,
        "attempt": checkpoint.author.attempt,
        "created_ms": checkpoint.created_ms,
        "job": checkpoint.job,
        "final": checkpoint.final,
        "name": checkpoint.name if isinstance(checkpoint, Savepoint) else None,
        "savepoint_format": (
            checkpoint.savepoint_format if isinstance(checkpoint, Savepoint) else None
        ),
        "operators": [_operator_fields(operator) for operator in checkpoint.operators],
    }


def _operator_fields(operator: OperatorState) -> dict[str, Any]:
    return {
        "id": operator.id,
        "key_groups": operator.key_groups,
        "finished": fully_finished(operator),
        "chain": operator.chain,
        "states": [
            {"id": s.id, "name": s.name, "kind": s.kind, "schema": s.schema, "ttl_ms": s.ttl_ms}
            for s in operator.states
        ],
        "subtasks": [_subtask_fields(subtask) for subtask in operator.subtasks],
    }


def _subtask_fields(state: SubtaskState) -> dict[str, Any]:
    ref = state.materialization
    return {
        "index": state.index,
        "first_key_group": state.first_key_group,
        "last_key_group": state.last_key_group,
        "seqno": state.seqno,
        "table": state.table,
        "descriptor": ref.descriptor if ref else None,
        "materialized_upto": state.upto,
        "materialized_bytes": _materialized_bytes(state),
        "replay_changes": replay_changes(state),
        "log_ranges": sum(len(layer.log) for layer in state.layers),
        "log_bytes": _log_bytes(state),
        "inline_blocks": sum(len(layer.inline) for layer in state.layers),
        "inline_bytes": inline_bytes(state),
        "watermark": state.watermark,
        "transactions": len(state.transactions),
        "finished": state.finished,
        "operator_state": [
            {"operator": p.operator, "name": p.name, "kind": p.kind, "entries": len(p.entries)}
            for p in state.operator_state
        ],
        "inherited": [
            {
                "subtask": layer.subtask,
                "first_key_group": layer.first_key_group,
                "last_key_group": layer.last_key_group,
                "descriptor": layer.materialization.descriptor if layer.materialization else None,
                "bytes": layer_bytes(layer),
            }
            for layer in state.inherited
        ],
        **alignment_fields(state),
    }


def _materialized_bytes(state: SubtaskState) -> int:
    refs = [layer.materialization for layer in state.layers]
    return sum(ref.table_bytes for ref in refs if ref is not None)


def _log_bytes(state: SubtaskState) -> int:
    return sum(part.length for layer in state.layers for part in layer.log)


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
    """How the barrier passed a subtask, for --json."""
    facts, in_flight = state.barrier, state.in_flight
    return {
        "unaligned": facts.unaligned if facts is not None else None,
        "start_delay_ms": facts.start_delay_ms if facts is not None else None,
        "alignment_ms": facts.alignment_ms if facts is not None else None,
        "in_flight_buffers": in_flight.buffers if in_flight is not None else 0,
        "in_flight_bytes": in_flight_bytes(state),
    }
