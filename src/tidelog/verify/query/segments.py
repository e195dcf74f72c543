"""A segment of a Spark checkpoint in whole, and plain files by the checksums beside them.

Invariant: damage found here costs no batch by itself: the state stores that need the bytes say so.
"""

from dataclasses import dataclass

from tidelog.checkpoint.finding import UNREADABLE, Finding
from tidelog.errors import ObjectNotFoundError
from tidelog.spark.checkpoint.checkpoint import SEGMENTS
from tidelog.spark.format.names import segment_name
from tidelog.spark.format.segment import read_footer
from tidelog.verify.findings import Check, finding_of
from tidelog.verify.query.files import CheckedFiles
from tidelog.verify.unit import UnitResult, Workspace

_TOKEN_BYTES = 16


@dataclass(frozen=True, slots=True)
class SparkSegmentUnit:
    """A segment that holds something a retained batch needs."""

    segment: str
    """The segment's name without its directory."""
    weight: int
    """Length of the segment in bytes."""

    @property
    def label(self) -> str:
        """The object's name."""
        return SEGMENTS + self.segment

    async def check(self, workspace: Workspace) -> UnitResult:
        """Read and check every byte; raises errors that are no finding."""
        try:
            data = await workspace.store.get(self.label)
        except ObjectNotFoundError:
            return UnitResult()  # The state stores that need it say so.
        return UnitResult(findings=await workspace.effects.offload.run(self._findings, data))

    def _findings(self, data: bytes) -> tuple[Finding, ...]:
        try:
            author, _ = read_footer(data, self.label)
        except UNREADABLE as error:
            return (finding_of(error, [self.label]),)
        token, _, _ = self.segment.rpartition("-")
        run, _, executor = token.partition("-")
        found = segment_name(run, executor, author.counter), author.process
        if found == (self.segment, token[:_TOKEN_BYTES]):
            return ()
        expected = "its own name in its header"
        written = f"{author.process}, number {author.counter}"
        return (Finding(Check.SEGMENT_NAME, self.label, expected, written),)


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

    async def check(self, workspace: Workspace) -> UnitResult:
        """Read all these files; raises errors that are no finding."""
        reader = CheckedFiles(workspace.store, self.beside)
        findings = []
        for name, batch in self.files:
            try:
                await reader.read(name)
            except UNREADABLE as error:
                findings.append(finding_of(error, [name], unusable=(batch,)))
        return UnitResult(findings=tuple(findings))
