"""A segment in whole: what checkpoints use of it, and what only its footer says.

Invariants: every byte of the object is under a checksum that is verified here; damage outside of
the ranges that checkpoints name costs none of them, and is reported all the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tidelog.changelog.segment import LogRange, Segment, read_footer
from tidelog.checkpoint.finding import UNREADABLE, Finding
from tidelog.errors import ConfigError, ObjectNotFoundError
from tidelog.ids import Slot, SubtaskId
from tidelog.storage import object_names
from tidelog.verify.findings import Check, finding_of
from tidelog.verify.unit import UnitResult, Workspace


@dataclass(frozen=True, slots=True)
class RangeUse:
    """A log range that checkpoints name as the log of one subtask."""

    range: LogRange
    owner: SubtaskId
    checkpoints: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class SegmentUnit:
    """A segment that retained checkpoints use."""

    segment: str
    weight: int
    """Length of the segment in bytes."""
    uses: tuple[RangeUse, ...]

    @property
    def label(self) -> str:
        """The object's name."""
        return self.segment

    async def check(self, workspace: Workspace) -> UnitResult:
        """Read and check it; raises errors that are no finding."""
        try:
            data = await workspace.store.get(self.segment)
        except ObjectNotFoundError:
            return UnitResult()  # The partitions that need it say so.
        return UnitResult(findings=await workspace.effects.offload.run(self._findings, data))

    def _findings(self, data: bytes) -> tuple[Finding, ...]:
        try:
            segment = read_footer(data, self.segment)
        except UNREADABLE as error:
            return (finding_of(error, [self.segment]),)
        return (*self._misnamed(segment), *self._misused(segment))

    def _misnamed(self, segment: Segment) -> Iterator[Finding]:
        author = segment.author
        try:
            name = object_names.segment(author.generation, author.process, author.counter)
        except ConfigError as error:
            name = error.what
        if name != self.segment:
            yield Finding(Check.SEGMENT_NAME, self.segment, "its own name in its header", name)

    def _misused(self, segment: Segment) -> Iterator[Finding]:
        for use in self.uses:
            begin, end = use.range.offset, use.range.offset + use.range.length
            owners = {
                SubtaskId(entry.operator, entry.subtask)
                for entry in segment.entries
                if begin <= entry.offset < end
            }
            if owners != {use.owner}:
                yield Finding(
                    Check.OWNER,
                    self.segment,
                    f"log of {use.owner} in bytes {begin} to {end - 1}",
                    f"log of {', '.join(map(str, sorted(owners)))}" if owners else "no block",
                    (str(use.owner),),
                    unusable=use.checkpoints,
                )
