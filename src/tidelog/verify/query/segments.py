"""A segment of a Spark checkpoint in whole, and plain files by the checksums beside them.

Invariant: damage found here costs no batch by itself: the state stores that need the bytes say so.
"""

from dataclasses import dataclass

from tidelog.errors import ObjectNotFoundError
from tidelog.spark.checkpoint import SEGMENTS
from tidelog.spark.format.names import segment_name
from tidelog.spark.format.segment import read_footer
from tidelog.verify.bench import Bench, UnitResult
from tidelog.verify.problems import UNREADABLE, Check, Problem, problem_of
from tidelog.verify.query.files import CheckedFiles

_TOKEN_BYTES = 16


@dataclass(frozen=True, slots=True)
class SparkSegmentUnit:
    """A segment that holds something a retained batch needs."""

    segment: str
    """Without its directory."""
    weight: int
    """Its length in bytes."""

    @property
    def label(self) -> str:
        """The object's name."""
        return SEGMENTS + self.segment

    async def check(self, bench: Bench) -> UnitResult:
        """Read and check every byte; raises errors that are no finding."""
        try:
            data = await bench.store.get(self.label)
        except ObjectNotFoundError:
            return UnitResult()  # The state stores that need it say so.
        return UnitResult(problems=await bench.effects.offload.run(self._problems, data))

    def _problems(self, data: bytes) -> tuple[Problem, ...]:
        try:
            author, _ = read_footer(data, self.label)
        except UNREADABLE as error:
            return (problem_of(error, [self.label]),)
        token, _, _ = self.segment.rpartition("-")
        run, _, executor = token.partition("-")
        found = segment_name(run, executor, author.counter), author.process
        if found == (self.segment, token[:_TOKEN_BYTES]):
            return ()
        expected = "its own name in its header"
        written = f"{author.process}, number {author.counter}"
        return (Problem(Check.SEGMENT_NAME, self.label, expected, written),)


@dataclass(frozen=True, slots=True)
class FilesUnit:
    """Commits and offsets of retained batches."""

    files: tuple[tuple[str, int], ...]
    """Names, and the batch that each belongs to."""
    beside: frozenset[str]
    """The checksum files there are."""

    @property
    def label(self) -> str:
        """For people."""
        return "commits and offsets"

    @property
    def weight(self) -> int:
        """About a kilobyte each."""
        return len(self.files) << 10

    async def check(self, bench: Bench) -> UnitResult:
        """Read all of them; raises errors that are no finding."""
        reader = CheckedFiles(bench.store, self.beside)
        problems = []
        for name, batch in self.files:
            try:
                await reader.read(name)
            except UNREADABLE as error:
                problems.append(problem_of(error, [name], unusable=(batch,)))
        return UnitResult(problems=tuple(problems))
