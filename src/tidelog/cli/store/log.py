"""`tidelog log`: the changes in the log of a checkpoint, decoded."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final, Literal

import click

from tidelog.catalog.locate import CheckpointName, find
from tidelog.changelog.block import Block, BlockKind, open_block
from tidelog.changelog.change import ChangeBatch
from tidelog.changelog.reader import SegmentReader
from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.manifest import Checkpoint, SubtaskState, is_canonical
from tidelog.cli.exit_codes import EXIT_OK
from tidelog.cli.output import Output, fields_of, text
from tidelog.cli.store.options import StoreCommand, checkpoint_option, on_store, selected
from tidelog.errors import ConfigError, ObjectNotFoundError, RestoreError
from tidelog.ids import SeqNo, Slot
from tidelog.state.schema.decode import DecodedRow, RowDecoder

POLL_S: Final = 1.0
"""How often `--follow` looks for a newer checkpoint."""


@click.command("log")
@on_store
@checkpoint_option
@click.option("--operator", metavar="ID", help="Changes of this operator only.")
@click.option("--subtask", type=click.IntRange(min=0), help="Changes of this subtask only.")
@click.option("--follow", is_flag=True, help="Go on with the checkpoints to come, until the last.")
@click.option("--limit", type=click.IntRange(min=1), help="Stop after so many changes.")
async def command(
    invocation: StoreCommand,
    checkpoint: CheckpointName,
    operator: str | None,
    subtask: int | None,
    follow: bool,
    limit: int | None,
) -> int:
    """Print the changes in the log of a checkpoint in the store at URL.

    The log reaches from each subtask's last materialization to the checkpoint. Subtasks follow
    each other; within one, changes are in their order.
    """
    if follow and checkpoint is not None:
        raise ConfigError(
            "--follow with --checkpoint",
            expected="one of them",
            found="both",
            action="leave one out; --follow starts at the newest checkpoint",
        )
    tail = Tail(invocation, operator, subtask)
    remaining = limit
    async for line in tail.lines(checkpoint, follow=follow):
        _print(invocation.output, line)
        if remaining is not None and isinstance(line, Change):
            remaining -= 1
            if remaining == 0:
                break
    return EXIT_OK


@dataclass(frozen=True, slots=True)
class Change:
    checkpoint: Slot
    operator: str
    subtask: int
    seqno: SeqNo
    op: Literal["put", "delete"]
    row: DecodedRow


@dataclass(frozen=True, slots=True)
class MissingRange:
    """Changes that left the log before they could be printed."""

    operator: str
    subtask: int
    skipped_from: SeqNo
    skipped_to: SeqNo


@dataclass(slots=True)
class Tail:
    """Walks the logs of checkpoints; each change comes once."""

    invocation: StoreCommand
    operator: str | None = None
    subtask: int | None = None
    _reader: SegmentReader = field(init=False)
    _next: dict[tuple[str, int, int, int], SeqNo] = field(default_factory=dict)
    """By operator, subtask and key groups: subtasks of another parallelism number changes anew."""

    def __post_init__(self) -> None:
        self._reader = SegmentReader(self.invocation.store)

    async def lines(
        self, name: CheckpointName, *, follow: bool
    ) -> AsyncIterator[Change | MissingRange]:
        """The changes of a checkpoint, and of those after it when following."""
        store, clock = self.invocation.store, self.invocation.effects.clock
        checkpoint = await find(store, name)
        while True:
            try:
                # A canonical savepoint holds rows: no change of the job is among them.
                if not (follow and is_canonical(checkpoint)):
                    async for line in self._changes(checkpoint):
                        yield line
            except (RestoreError, ObjectNotFoundError):
                # A running job drops old checkpoints, also those being read here.
                if not follow or (await find(store, None)).slot == checkpoint.slot:
                    raise
            if not follow or checkpoint.final:
                return
            previous_slot = checkpoint.slot
            while checkpoint.slot == previous_slot:
                await clock.sleep(POLL_S)
                checkpoint = await find(store, None)

    async def _changes(self, checkpoint: Checkpoint) -> AsyncIterator[Change | MissingRange]:
        chosen = {
            (operator.id, state.index, state.first_key_group, state.last_key_group): (
                operator,
                state,
            )
            for operator, state in selected(checkpoint, self.operator, self.subtask)
        }
        self._next = {which: seqno for which, seqno in self._next.items() if which in chosen}
        for which, (operator, state) in chosen.items():
            decoder = RowDecoder(operator.states)
            where = operator.id, state.index
            start = state.upto
            reached = self._next.get(which, start)
            if reached < start:
                yield MissingRange(*where, reached, start)
            async for batch in self._batches(operator.id, state, max(reached, start)):
                rows = zip(batch.keys, batch.values, strict=True)
                for seqno, (key, value) in enumerate(rows, batch.first):
                    op: Literal["put", "delete"] = "delete" if value is None else "put"
                    row = decoder.decode(key, value)
                    yield Change(checkpoint.slot, *where, SeqNo(seqno), op, row)
                self._next[which] = batch.end
            self._next[which] = max(reached, state.seqno)

    async def _batches(
        self, operator: str, state: SubtaskState, start: SeqNo
    ) -> AsyncIterator[ChangeBatch]:
        """The batches of changes from `start`, where one begins, to the checkpoint, in order.

        Blocks flushed after the barrier are left out.
        """
        what = f"inline log of {operator}-{state.index}"
        parts: list[LogRange | Block] = list(state.log)
        parts += [open_block(data, 0, what) for data in state.inline]
        for part in sorted(parts, key=lambda part: (part.first, part.end)):
            if part.end <= start:
                continue
            blocks = [part] if isinstance(part, Block) else await self._reader.read_range(part)
            for block in blocks:
                if block.kind == BlockKind.CHANGES and start < block.end <= state.seqno:
                    yield await self.invocation.effects.offload.run(block.changes)
                    start = block.end


def _print(output: Output, line: Change | MissingRange) -> None:
    if output.as_json:
        row = fields_of(line.row) if isinstance(line, Change) else {}
        output.json_line(fields_of(line, "row") | row)
    elif isinstance(line, MissingRange):
        output.line(
            f"{line.operator}-{line.subtask}: changes {line.skipped_from} to "
            f"{line.skipped_to - 1} left the log before they were read; they are materialized"
        )
    else:
        decoded = line.row
        key = (
            text(decoded.key)
            if decoded.entry is None
            else f"{text(decoded.key)}[{text(decoded.entry)}]"
        )
        where = f"{line.operator}-{line.subtask}"
        cells = [where, str(line.seqno), line.op, decoded.state or "?", key]
        output.line("  ".join(cells if line.op == "delete" else [*cells, text(decoded.value)]))
