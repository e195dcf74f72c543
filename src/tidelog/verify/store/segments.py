"""A segment in whole: what checkpoints use of it, and what only its footer says.

Invariants: every byte of the object is under a checksum that is verified here; damage outside of
the ranges that checkpoints name costs none of them, and is told all the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tidelog.dstl.segment import LogRange, Segment, read_footer
from tidelog.errors import ConfigError, ObjectNotFoundError
from tidelog.ids import Slot
from tidelog.storage import paths
from tidelog.verify.bench import Bench, UnitResult
from tidelog.verify.problems import UNREADABLE, Check, Problem, problem_of
from tidelog.verify.store.structure import partition_label


@dataclass(frozen=True, slots=True)
class RangeUse:
    """A log range as checkpoints name it, and for which partition."""

    range: LogRange
    operator: str
    subtask: int
    checkpoints: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class SegmentUnit:
    """A segment that retained checkpoints use."""

    segment: str
    weight: int
    """Its length in bytes."""
    uses: tuple[RangeUse, ...]

    @property
    def label(self) -> str:
        """The object's name."""
        return self.segment

    async def check(self, bench: Bench) -> UnitResult:
        """Read and check it; raises errors that are no finding."""
        try:
            data = await bench.store.get(self.segment)
        except ObjectNotFoundError:
            return UnitResult()  # The partitions that need it say so.
        return UnitResult(problems=await bench.effects.offload.run(self._problems, data))

    def _problems(self, data: bytes) -> tuple[Problem, ...]:
        try:
            segment = read_footer(data, self.segment)
        except UNREADABLE as error:
            return (problem_of(error, [self.segment]),)
        return (*self._misnamed(segment), *self._misused(segment))

    def _misnamed(self, segment: Segment) -> Iterator[Problem]:
        author = segment.author
        try:
            name = paths.segment(author.generation, author.process, author.counter)
        except ConfigError as error:
            name = error.what
        if name != self.segment:
            yield Problem(Check.SEGMENT_NAME, self.segment, "its own name in its header", name)

    def _misused(self, segment: Segment) -> Iterator[Problem]:
        for use in self.uses:
            begin, end = use.range.offset, use.range.offset + use.range.length
            label = partition_label(use.operator, use.subtask)
            owners = {
                partition_label(entry.operator, entry.subtask)
                for entry in segment.entries
                if begin <= entry.offset < end
            }
            if owners != {label}:
                yield Problem(
                    Check.OWNER,
                    self.segment,
                    f"log of {label} in bytes {begin} to {end - 1}",
                    f"log of {', '.join(sorted(owners))}" if owners else "no block",
                    (label,),
                    unusable=use.checkpoints,
                )
