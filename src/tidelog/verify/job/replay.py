"""Replays the paths that begin at the tables of one subtask, and says what each makes.

Invariants: the changes that make a state are exactly [materialized, seqno) without a gap; log that
several paths have in common is read and applied once, in one table; damage costs the paths that
need what is damaged, and no others.
"""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tidelog.changelog.block import Block, BlockKind, open_block
from tidelog.changelog.reader import SegmentReader
from tidelog.changelog.replay import LastWriterWins
from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.finding import UNREADABLE
from tidelog.checkpoint.manifest import StateInfo, SubtaskState
from tidelog.checkpoint.sizes import layer_bytes
from tidelog.effects import Offload
from tidelog.engines import Workspace
from tidelog.ids import KeyGroup, SeqNo, SubtaskId
from tidelog.state.key_groups import KeyGroupRange
from tidelog.verify.job.paths import PathStep, RestorePath
from tidelog.verify.job.rows import RowScan
from tidelog.verify.job.table import BOUNDS, Restoring, ScannedTable
from tidelog.verify.results import PathResult, UnitResult


@dataclass(frozen=True, slots=True)
class PathBase:
    """The state of one subtask below its own log, and the paths that begin there."""

    operator: str
    state: SubtaskState
    files: Mapping[str, str] = field(compare=False)
    """The objects of its materialization's files, by the files' names; they follow from `state`."""
    key_groups: int
    states: tuple[StateInfo, ...]
    paths: tuple[RestorePath, ...] = ()

    @property
    def subtask(self) -> SubtaskId:
        return SubtaskId(self.operator, self.state.index)

    def scan(self) -> RowScan:
        """A scan of its table that has taken nothing yet."""
        first, last = self.state.first_key_group, self.state.last_key_group
        owned = KeyGroupRange(KeyGroup(first), KeyGroup(last))
        return RowScan(self.key_groups, owned, self.states)

    @property
    def weight(self) -> int:
        """Bytes of its table and of the log of its paths."""
        log: dict[LogRange | bytes, int] = {}
        for path in self.paths:
            for step in path.steps:
                log[step.log] = step.stored_bytes
        return sum(map(layer_bytes, self.state.layers)) + sum(log.values())


@dataclass(frozen=True, slots=True)
class PartitionUnit:
    """Paths to states of one subtask; a file that several of the tables need is read once."""

    bases: Sequence[PathBase]

    @property
    def weight(self) -> int:
        return sum(base.weight for base in self.bases)

    async def run(self, workspace: Workspace) -> UnitResult:
        what, kind = str(self.bases[0].subtask), self.bases[0].state.table
        results: list[PathResult] = []
        try:
            restoring = Restoring(workspace, what, kind, staged=len(self.bases) > 1)
        except UNREADABLE as error:
            for base in self.bases:
                results += [path.failed(error) for path in base.paths]
            return UnitResult(paths=tuple(results))
        try:
            for base in self.bases:
                results += await _replay(base, restoring)
        finally:
            await restoring.close()
        return UnitResult(paths=tuple(results))


async def _replay(base: PathBase, restoring: Restoring) -> list[PathResult]:
    """What the paths from one table make."""
    workspace = restoring.workspace
    reader = SegmentReader(workspace.store, BOUNDS.concurrency)
    results: dict[RestorePath, PathResult] = {}
    todo = sorted(base.paths, key=lambda path: (path.seqno, len(path.steps)))
    scan, scanned = base.scan(), False
    while todo:
        try:
            async with restoring.table(base.state, base.files) as restored_table:
                table = ScannedTable(restored_table, scan.copy(), scanned)
                scan, scanned = await workspace.effects.offload.run(table.rows), True
                replayer = _Replayer(restoring, table, reader, base.state.upto)
                for path in todo:
                    if replayer.leads_to(path):
                        results[path] = await replayer.replay(path)
        except UNREADABLE as error:
            # The table is damaged.
            for path in todo:
                results.setdefault(path, path.failed(error))
        todo = [path for path in todo if path not in results]
    return list(results.values())


@dataclass(slots=True)
class _Replayer:
    """Follows the log from one table to the end of one path after the other."""

    restoring: Restoring
    table: ScannedTable
    reader: SegmentReader
    next: SeqNo
    """The change that comes after those in the table."""
    applied: tuple[PathStep, ...] = ()
    """The steps that the changes in the table are of, the last one perhaps in part."""

    def leads_to(self, path: RestorePath) -> bool:
        """Whether the table has nothing that the path has not."""
        return path.steps[: len(self.applied)] == self.applied

    async def replay(self, path: RestorePath) -> PathResult:
        """Go to the end of a path; raises damage of the table alone."""
        # What lies in a manifest is of its checkpoint alone, and comes in a segment later.
        segment_steps = (n for n, s in enumerate(path.steps, 1) if isinstance(s.log, LogRange))
        common = max(segment_steps, default=0)
        merge = LastWriterWins(
            BOUNDS.replay_bytes, self.next, None, f"log of {self.restoring.what}"
        )
        try:
            async for number, block in self._blocks(path, self._next_step, common):
                await self._add(merge, block)
                if merge.full:
                    await self._apply(merge, path.steps[: number + 1])
            await self._apply(merge, path.steps[:common])
            async for _, block in self._blocks(path, common, len(path.steps)):
                await self._add(merge, block)
            merge.check_end(path.seqno)
        except UNREADABLE as error:
            if self.restoring.is_of_table(error):
                raise
            return path.failed(error)
        return path.made(await self._offload.run(self.table.changed, *merge.drain()))

    @property
    def _next_step(self) -> int:
        """The step to go on with: the last one, if it reaches beyond the path before."""
        last = self.applied[-1].log if self.applied else None
        in_part = isinstance(last, LogRange) and last.end > self.next
        return len(self.applied) - in_part

    @property
    def _offload(self) -> Offload:
        return self.restoring.workspace.effects.offload

    async def _add(self, merge: LastWriterWins, block: Block) -> None:
        """Merge a block that the table lacks; raises for a gap, or a block it cannot decode."""
        if block.end > merge.next:
            merge.add(await self._offload.run(block.changes), block.raw_bytes)

    async def _apply(self, merge: LastWriterWins, steps: tuple[PathStep, ...]) -> None:
        await self._offload.run(lambda: self.table.apply(*merge.drain()))
        self.next, self.applied = merge.next, steps

    async def _blocks(
        self, path: RestorePath, start: int, end: int
    ) -> AsyncIterator[tuple[int, Block]]:
        """The blocks of changes in steps [start, end) that count, with the number of the step."""
        for first, after in _groups(path.steps, start, end):
            steps = path.steps[first:after]
            ranges = [step.log for step in steps if isinstance(step.log, LogRange)]
            read = iter(await self.reader.read_ranges(ranges))
            for number, step in enumerate(steps, first):
                blocks = (
                    [open_block(step.log, 0, f"inline log of {self.restoring.what}")]
                    if isinstance(step.log, bytes)
                    else next(read)
                )
                limit = path.seqno if step.end is None else min(path.seqno, step.end)
                for block in blocks:
                    if block.kind == BlockKind.CHANGES and block.end <= limit:
                        yield number, block


def _groups(steps: Sequence[PathStep], start: int, end: int) -> Iterator[tuple[int, int]]:
    """(start, end) of neighbours that are read together, as many as memory is meant for."""
    size = 0
    for number in range(start, end):
        if number > start and size + steps[number].stored_bytes > BOUNDS.read_ahead_bytes // 2:
            yield start, number
            start, size = number, 0
        size += steps[number].stored_bytes
    if start < end:
        yield start, end
