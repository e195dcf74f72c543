"""`tidelog checkpoints`: what a store has, what a checkpoint holds; drops savepoints."""

import logging
from collections.abc import Iterator

import click
import msgspec

from tidelog.catalog.gc import plan_drop
from tidelog.catalog.inventory import read_inventory, read_slots
from tidelog.catalog.locate import CheckpointName, find, parse_checkpoint
from tidelog.catalog.summary import (
    CheckpointSummary,
    OperatorSummary,
    SlotSummary,
    SubtaskSummary,
    checkpoint_summary,
    slot_summary,
)
from tidelog.cli.exit_codes import EXIT_OK, EXIT_PROBLEM
from tidelog.cli.options import option
from tidelog.cli.output import Rows
from tidelog.cli.store.options import StoreCommand, checkpoint_name, on_store
from tidelog.cli.values import age, size
from tidelog.errors import TidelogError
from tidelog.events import Event
from tidelog.runtime.control.client import ask
from tidelog.runtime.control.protocol import Request
from tidelog.state.event_time import MAX_WATERMARK
from tidelog.storage import object_names

logger = logging.getLogger(__name__)


@click.group("checkpoints")
def command() -> None:
    """List checkpoints, show what they hold, drop savepoints."""


@command.command("list")
@on_store
async def list_command(invocation: StoreCommand) -> int:
    """List the checkpoints at URL, oldest first.

    Each start of a job has a number as well. Exits with 1 when one of them cannot be read.
    """
    slots = await read_slots(invocation.store)
    summaries = [slot_summary(slots, slot) for slot in sorted(slots.sizes)]
    now_ms = invocation.effects.clock.now_ms()

    def age_of(summary: SlotSummary) -> str | None:
        return None if summary.created_ms is None else age(now_ms - summary.created_ms)

    invocation.output.show(
        {"url": invocation.store.url, "checkpoints": summaries},
        Rows(
            summaries,
            *("checkpoint", "kind", "generation", "attempt", ("age", age_of), "manifest_bytes"),
            *("log_bytes", "materialized_bytes", "inline_bytes", ("", _remarks)),
        ),
        *(f"checkpoint {slot}: {error}" for slot, error in sorted(slots.unreadable.items())),
    )
    return EXIT_PROBLEM if slots.unreadable else EXIT_OK


def _remarks(summary: SlotSummary) -> str:
    final = "final" if summary.final else None
    unaligned = "unaligned" if summary.unaligned else None
    return ", ".join(filter(None, (final, unaligned, summary.name, summary.savepoint_format)))


@command.command("show")
@on_store
@click.argument("checkpoint", type=checkpoint_name, default="latest")
async def show_command(invocation: StoreCommand, checkpoint: CheckpointName) -> int:
    """Show a checkpoint per operator and subtask.

    CHECKPOINT is a number, the name of a savepoint, or latest. The table of a subtask has its
    changes below "materialized upto"; a restore replays the rest from the log.
    """
    summary = checkpoint_summary(await find(invocation.store, checkpoint))
    document = {"url": invocation.store.url, **msgspec.structs.asdict(summary)}
    invocation.output.show(document, *_described(summary))
    return EXIT_OK


def _described(summary: CheckpointSummary) -> Iterator[str | Rows]:
    yield (
        f"checkpoint {summary.checkpoint} of job {summary.job!r}, generation {summary.generation}, "
        f"attempt {summary.attempt}{', final' if summary.final else ''}"
    )
    if summary.name is not None:
        yield f"savepoint {summary.name}, {summary.savepoint_format}"
    for operator in summary.operators:
        yield ""
        yield f"operator {operator.id}, {operator.key_groups} key groups{_finished(operator)}"
        for state in operator.states:
            yield f"  state {state.id} {state.name}: {state.kind} ({'; '.join(state.schema)})"
        yield from _alignment(operator)
        yield Rows(
            operator.subtasks,
            ("subtask", lambda s: s.index),
            ("groups", lambda s: f"{s.first_key_group}-{s.last_key_group}"),
            ("changes", lambda s: s.seqno),
            *("materialized_upto", "materialized_bytes", "replay_changes", "log_bytes"),
            *("inline_bytes", ("watermark", _watermark), "finished"),
        )
        for subtask in operator.subtasks:
            parts = (
                f"key groups {part.first_key_group}-{part.last_key_group} of subtask {part.subtask}"
                for part in subtask.inherited
            )
            if inherited := ", ".join(dict.fromkeys(parts)):
                yield f"  subtask {subtask.index} builds on {inherited} as it was before"


def _watermark(subtask: SubtaskSummary) -> int | str | None:
    return "end" if subtask.watermark == MAX_WATERMARK else subtask.watermark


def _finished(operator: OperatorSummary) -> str:
    """What of an operator has finished, in words."""
    if operator.finished:
        return ", finished" + "".join(f", and {name}" for name in operator.chain or ())
    done = [str(subtask.index) for subtask in operator.subtasks if subtask.finished]
    return f", finished in part: subtask {', '.join(done)}" if done else ""


def _alignment(operator: OperatorSummary) -> Iterator[str]:
    """How the barrier passed an operator, where a subtask says."""
    passed = [s for s in operator.subtasks if s.start_delay_ms is not None]
    if passed:
        in_flight = sum(subtask.in_flight_bytes for subtask in operator.subtasks)
        yield (
            f"  {'unaligned' if any(s.unaligned for s in passed) else 'aligned'}"
            f"{f', {size(in_flight)} in flight' if in_flight else ''}; start delay "
            f"{max(s.start_delay_ms or 0 for s in passed)} ms, alignment "
            f"{max(s.alignment_ms or 0 for s in passed)} ms"
        )


@command.command("drop")
@on_store
@click.argument("savepoint")
@option("--dry-run/--delete", default=True, help="Only say what would be deleted.")
async def drop_command(invocation: StoreCommand, savepoint: str, dry_run: bool) -> int:
    """Remove a savepoint, by its name or number; without --delete only say what goes.

    Its objects that nothing else needs are deleted by the running job at once, or by the job's next
    start. `tidelog gc` deletes only what starts before the newest one wrote. The newest
    checkpoint of a store cannot be removed. A savepoint that another store was started from can,
    when the job there has completed a checkpoint.
    """
    output, store = invocation.output, invocation.store
    name = parse_checkpoint(savepoint)
    with output.progress("reading references") as progress:
        plan = plan_drop(await read_inventory(store, progress), name)
    entry = plan.savepoint
    if not dry_run:
        await store.delete(object_names.checkpoint(entry.slot))
        try:
            await ask(Request(store=store.url, operation="forget", checkpoint=entry.slot))
        except TidelogError as error:  # no job runs here: its next start finds out by itself
            Event.JOB_NOT_ASKED.log(logger, checkpoint=entry.slot, error=error)
    output.show(
        {
            "url": store.url,
            "deleted": not dry_run,
            "name": entry.name,
            "checkpoint": entry.slot,
            "objects": plan.objects,
            "freed_bytes": plan.freed_bytes,
        },
        f"savepoint {entry.name}, checkpoint {entry.slot}, "
        f"{'would be ' if dry_run else ''}removed; {len(plan.objects)} objects of "
        f"{size(plan.freed_bytes)} are needed by nothing else",
        *(["nothing was deleted; add --delete to do it"] if dry_run else []),
    )
    return EXIT_OK
