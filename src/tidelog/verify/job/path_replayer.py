"""Replays the paths from one materialization over one table, and says what each makes.

Invariants: the changes that make a state are exactly [materialized, seqno) without a gap; the trunk
of a tree is read and applied once, whatever ends or branches off along it; damage costs the paths
that need what is damaged, and no path that ends before.
"""

from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tidelog.changelog.block import Block, BlockKind, open_block
from tidelog.changelog.reader import SegmentReader
from tidelog.changelog.replay import LastWriterWins
from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.finding import UNREADABLE
from tidelog.effects import Offload
from tidelog.errors import TidelogError
from tidelog.ids import SeqNo
from tidelog.verify.job.restore_path import Branch, PathTree, RestorePath, Step
from tidelog.verify.job.restoring import BOUNDS
from tidelog.verify.job.scanned_table import ScannedTable
from tidelog.verify.unit import PathResult


@dataclass(slots=True)
class PathReplayer:
    """Replays one tree; its log begins at change `upto`."""

    tree: PathTree
    upto: SeqNo
    reader: SegmentReader
    offload: Offload
    found: dict[RestorePath, PathResult] = field(default_factory=dict)
    left: list[RestorePath] = field(default_factory=list)
    """Branches that change so much that they need a table of their own."""

    async def run(self, table: ScannedTable, what: str) -> None:
        """Go to the end over the table before any of the log; `what` names the partition.

        Raises what the trunk meets; what was found until then stays.
        """
        log = _LogOf(self.reader, self.offload, what)
        trunk, merge = self.tree.trunk, log.merge_from(self.upto)

        async def branch(found: Branch) -> None:
            if not merge.empty:
                await self.offload.run(lambda: table.apply(*merge.drain()))
            await self._branch(found, log, table, merge.next)

        waiting = deque(sorted(self.tree.branches, key=lambda each: (each.after, each.path.seqno)))
        cuts = frozenset(branch.after for branch in waiting)
        while waiting and waiting[0].after == 0:
            await branch(waiting.popleft())
        async for number, step, blocks in log.read(trunk.steps, cuts):
            for block in _counted(step, blocks, trunk.seqno):
                while waiting and not waiting[0].own and waiting[0].path.seqno < block.end:
                    await branch(waiting.popleft())
                await log.add(block, merge)
                if merge.full:
                    await self.offload.run(lambda: table.apply(*merge.drain()))
            while waiting and waiting[0].after <= number + 1:
                await branch(waiting.popleft())
        merge.check_end(trunk.seqno)
        self.found[trunk] = trunk.made(await self.offload.run(table.last, *merge.drain()))

    def failed(self, error: TidelogError) -> None:
        """What is not found yet cannot be, but for branches that are left."""
        for path in (self.tree.trunk, *(branch.path for branch in self.tree.branches)):
            if path not in self.found and path not in self.left:
                self.found[path] = path.failed(error)

    async def _branch(
        self, branch: Branch, log: "_LogOf", table: ScannedTable, first: SeqNo
    ) -> None:
        """A path that ends or leaves the trunk before change `first`, where the table is now."""
        path, merge = branch.path, log.merge_from(first)
        try:
            async for _, step, blocks in log.read(branch.own, frozenset()):
                for block in _counted(step, blocks, path.seqno):
                    await log.add(block, merge)
                    if merge.full:
                        self.left.append(path)
                        return
            merge.check_end(path.seqno)
        except UNREADABLE as error:
            self.found[path] = path.failed(error)
            return
        self.found[path] = path.made(await self.offload.run(table.changed, *merge.drain()))


@dataclass(frozen=True, slots=True)
class _LogOf:
    """The log of the partition that `what` names."""

    reader: SegmentReader
    offload: Offload
    what: str

    def merge_from(self, first: SeqNo) -> LastWriterWins:
        """Merges changes from number `first` on."""
        return LastWriterWins(BOUNDS.replay_bytes, first, None, f"log of {self.what}")

    async def add(self, block: Block, merge: LastWriterWins) -> None:
        """Merge a block, if not all of it is in the materialization; raises when it leaves a gap,
        or cannot be decoded.
        """
        if block.end > merge.next:
            merge.add(await self.offload.run(block.changes), block.raw_bytes)

    async def read(
        self, steps: Sequence[Step], cuts: frozenset[int]
    ) -> AsyncIterator[tuple[int, Step, Sequence[Block]]]:
        """(number, step, its blocks); what is read together does not go beyond a cut."""
        name = f"inline log of {self.what}"
        for start, end in _groups(steps, cuts):
            ranges = [step.log for step in steps[start:end] if isinstance(step.log, LogRange)]
            read = iter(await self.reader.read_ranges(ranges))
            for number in range(start, end):
                log = steps[number].log
                blocks = [open_block(log, 0, name)] if isinstance(log, bytes) else next(read)
                yield number, steps[number], blocks


def _counted(step: Step, blocks: Iterable[Block], seqno: SeqNo) -> Iterable[Block]:
    """The changes of a step that are part of a state."""
    end = seqno if step.end is None else min(seqno, step.end)
    return (block for block in blocks if block.kind == BlockKind.CHANGES and block.end <= end)


def _groups(steps: Sequence[Step], cuts: frozenset[int]) -> Iterator[tuple[int, int]]:
    """(start, end) of neighbours that are read together, as many as memory is meant for."""
    start = size = 0
    for number, step in enumerate(steps):
        if number > start and (
            number in cuts or size + step.stored_bytes > BOUNDS.read_ahead_bytes // 2
        ):
            yield start, number
            start, size = number, 0
        size += step.stored_bytes
    if steps:
        yield start, len(steps)
