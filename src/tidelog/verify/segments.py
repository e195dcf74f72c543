"""Segments in whole: what checkpoints use of them, and what only their footers say.

Invariants: every byte of the object is under a checksum that is verified here; damage outside of
what checkpoints name costs none of them, and is reported all the same.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tidelog.catalog.inventory import RangeUse
from tidelog.changelog.segment import read_footer
from tidelog.checkpoint.finding import UNREADABLE, Finding
from tidelog.engines import Workspace
from tidelog.errors import ConfigError, ObjectNotFoundError
from tidelog.ids import SubtaskId
from tidelog.spark.format import segment as spark_segment
from tidelog.spark.format.names import IN_COMMIT, segment_name
from tidelog.storage import object_names
from tidelog.verify.results import CheckName, UnitResult, finding_of

_TOKEN_BYTES = 16


@dataclass(frozen=True, slots=True)
class SegmentUnit:
    """A segment that holds something a retained checkpoint needs."""

    segment: str
    """The object, or the commit that it lies in."""
    weight: int
    """Length of the segment in bytes."""
    check: Callable[[str, bytes], list[Finding]]
    """Looks at name and content; raises the errors of damage. It can be pickled."""

    async def run(self, workspace: Workspace) -> UnitResult:
        """Read and check it; raises errors that are no finding."""
        try:
            data = await spark_segment.read_segment(workspace.store, self.segment)
            findings = await workspace.effects.offload.run(self.check, self.segment, data)
        except ObjectNotFoundError:
            return UnitResult()  # The partitions that need it say so.
        except UNREADABLE as error:
            findings = [finding_of(error, [self.segment])]
        is_object = not self.segment.startswith(IN_COMMIT)
        return UnitResult(
            findings=tuple(findings), coverage={self.segment: True} if is_object else {}
        )


def check_job_segment(uses: tuple[RangeUse, ...], name: str, data: bytes) -> list[Finding]:
    """What is wrong with a segment of a job of which checkpoints use these ranges."""
    segment = read_footer(data, name)
    author, findings = segment.author, []
    try:
        expected_name = object_names.segment(author.generation, author.process, author.counter)
    except ConfigError as error:
        expected_name = error.what
    if expected_name != name:
        findings.append(_misnamed(name, expected_name))
    for use in uses:
        owners = {
            SubtaskId(entry.operator, entry.subtask)
            for entry in segment.entries
            if entry.offset in use.bytes
        }
        if owners != {use.owner}:
            finding = Finding(
                CheckName.OWNER,
                name,
                f"log of {use.owner} in bytes {use.bytes[0]} to {use.bytes[-1]}",
                f"log of {', '.join(map(str, sorted(owners)))}" if owners else "no block",
                (str(use.owner),),
                unusable=use.slots,
            )
            findings.append(finding)
    return findings


def check_query_segment(name: str, data: bytes) -> list[Finding]:
    """What is wrong with a segment of the plug-in."""
    author, _ = spark_segment.read_footer(data, name)
    if name.startswith(IN_COMMIT):
        return []
    leaf = name.rpartition("/")[2]
    token, _, _ = leaf.rpartition("-")
    run, _, executor = token.partition("-")
    expected_leaf = segment_name(run, executor, author.counter)
    if (expected_leaf, author.process) == (leaf, token[:_TOKEN_BYTES]):
        return []
    return [_misnamed(name, f"{author.process}, number {author.counter}")]


def _misnamed(name: str, header_name: str) -> Finding:
    return Finding(CheckName.SEGMENT_NAME, name, "its own name in its header", header_name)
