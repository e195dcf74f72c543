"""`verify`: every checkpoint of a job, or every batch of a Spark query, restored and checked; which
of them can be relied on, and what is wrong.

Invariants: nothing is written to the store; what a running job drops, or a running query purges
meanwhile, is no damage; the verdict is a pure function of what was found; a checkpoint is sound
only when no problem concerns it; the verification passes only when nothing is wrong and something
was verified.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from tidelog.checkpoint.finding import Finding, Findings, without_changes
from tidelog.concurrency import Progress, no_progress
from tidelog.engines import Engine
from tidelog.spark.checkpoint.checkpoint import Layout, find_layout
from tidelog.storage.port import ObjectStore
from tidelog.verify.fingerprint import Fingerprint
from tidelog.verify.job.store import read_job
from tidelog.verify.query.checkpoint import read_query
from tidelog.verify.results import Choice, RestoredPartition, UnitResult

Verdict = Literal["sound", "doubtful", "unusable", "expired", "gone"]


@dataclass(frozen=True, slots=True)
class Content:
    """What an operator's partitions hold together in one checkpoint."""

    operator: str
    partitions: int
    rows: int | None
    fingerprint: str | None
    """32 hexadecimal digits, of all rows in any order; equal rows have equal ones. Both are None
    when only Spark can read them."""


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """One checkpoint; what could not be restored is not counted."""

    checkpoint: int
    """The number of the checkpoint, or the batch of a Spark query."""
    verdict: Verdict
    partitions: int
    rows: int | None
    changes: int
    equal: int
    """Partitions that were restored in two ways, with the same result."""
    different: int
    unchecked: int
    contents: tuple[Content, ...]


class Unchecked(NamedTuple):
    """A partition that was not restored a second way, and the checkpoints that this is so in."""

    partition: str
    reason: str
    checkpoints: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class VerifyReport:
    url: str
    layout: Layout
    engine: str
    checkpoints: tuple[CheckpointReport, ...]
    problems: tuple[Finding, ...]
    unchecked: tuple[Unchecked, ...]
    unseen: tuple[tuple[str, str], ...] = ()
    """(object, why damage to it may not be found): of a query's checkpoint."""
    all_seen: bool = True
    """Whether every checkpoint was looked at, not only a chosen one."""

    @property
    def passed(self) -> bool:
        """Nothing is wrong with the store, and at least one checkpoint is sound."""
        return not self.problems and self.newest_sound is not None

    @property
    def newest_sound(self) -> int | None:
        """The newest sound checkpoint."""
        sound = (c.checkpoint for c in self.checkpoints if c.verdict == "sound")
        return max(sound, default=None)


async def verify(
    store: ObjectStore, engine: Engine, *, chosen: Choice = "all", progress: Progress = no_progress
) -> VerifyReport:
    """Verify all checkpoints, the latest, the one of a number (of a Spark query: a batch), or the
    newest savepoint of a name.

    Raises CheckpointNotFoundError for one that is not there, RestoreError when there is none at
    all, and what the store raises.
    """
    layout = await find_layout(store)
    read = read_job if layout == "job" else read_query
    work = await read(store, chosen, engine.workers, progress)
    results, present = await work.settle(await engine.run(work.units, progress))
    findings = Findings()
    findings.add(work.findings)
    for result in results:
        findings.add(result.findings)
    problems = tuple(without_changes(findings.without_repeats(), work.listed, present))
    return VerifyReport(
        url=store.url,
        layout=layout,
        engine=engine.name,
        checkpoints=_checkpoint_reports(work.checkpoints, results, problems, present, work.expired),
        problems=problems,
        unchecked=_not_checked(results, present),
        unseen=tuple(_unseen(work.objects, results)),
        all_seen=chosen == "all",
    )


def _checkpoint_reports(
    numbers: Sequence[int],
    results: Sequence[UnitResult],
    problems: Sequence[Finding],
    present: Collection[int],
    expired: Collection[int] = (),
) -> tuple[CheckpointReport, ...]:
    """The verdicts in ascending order; `numbers` are the checkpoints that were verified.

    `present` are those that the store still has at the end, `expired` those that Spark's clean-up
    took state from.
    """
    unusable: set[int] = set()
    doubtful: set[int] = set()
    for problem in problems:
        unusable.update(problem.unusable)
        doubtful.update(problem.doubtful)
    restored: dict[int, list[RestoredPartition]] = defaultdict(list)
    for result in results:
        for part in result.restored:
            for number in part.checkpoints:
                restored[number].append(part)

    def verdict(number: int) -> Verdict:
        if number not in present:
            return "gone"
        if number in unusable:
            return "unusable"
        if number in expired:
            return "expired"
        return "doubtful" if number in doubtful else "sound"

    reports = []
    for number in sorted(numbers):
        reports.append(_checkpoint_report(number, verdict(number), restored[number]))
    return tuple(reports)


def _checkpoint_report(
    number: int, verdict: Verdict, parts: list[RestoredPartition]
) -> CheckpointReport:
    redundancy, changes = Counter[str](), 0
    for part in parts:
        redundancy[part.redundancy] += 1
        changes += part.changes
    total = _total(parts)
    return CheckpointReport(
        checkpoint=number,
        verdict=verdict,
        partitions=len(parts),
        rows=None if total is None else total.rows,
        changes=changes,
        equal=redundancy["equal"],
        different=redundancy["different"],
        unchecked=redundancy["not checked"],
        contents=tuple(_contents(parts)),
    )


def _contents(parts: Iterable[RestoredPartition]) -> Iterator[Content]:
    by_operator: dict[str, list[RestoredPartition]] = defaultdict(list)
    for part in parts:
        by_operator[part.operator].append(part)
    for operator, operator_parts in sorted(by_operator.items()):
        total = _total(operator_parts)
        rows, digits = (None, None) if total is None else (total.rows, str(total))
        yield Content(operator, len(operator_parts), rows, digits)


def _total(parts: Iterable[RestoredPartition]) -> Fingerprint | None:
    """The fingerprint of all rows; None when that of a part is not known."""
    total = Fingerprint()
    for part in parts:
        if part.fingerprint is None:
            return None
        total += part.fingerprint
    return total


NOT_NEEDED: Final = "none of these batches needs it"
NO_CHECKSUM: Final = "it was read, but no checksum says whether its bytes are those written"


def _unseen(objects: Iterable[str], results: Iterable[UnitResult]) -> Iterator[tuple[str, str]]:
    """The objects in which damage may not be found."""
    coverage: dict[str, bool] = {}
    for result in results:
        for name, checked in result.coverage.items():
            coverage[name] = checked or coverage.get(name, False)
    for name in objects:
        if not coverage.get(name):
            yield name, NO_CHECKSUM if name in coverage else NOT_NEEDED


def _not_checked(results: Iterable[UnitResult], present: Collection[int]) -> tuple[Unchecked, ...]:
    """Partitions that were restored in one way only, with the reason and the checkpoints."""
    reasons: dict[tuple[str, str], set[int]] = defaultdict(set)
    for result in results:
        for part in result.restored:
            if part.reason is not None:
                reasons[part.partition, part.reason].update(part.checkpoints)
    unchecked = []
    for (partition, reason), numbers in sorted(reasons.items()):
        if checkpoints := numbers.intersection(present):
            unchecked.append(Unchecked(partition, reason, tuple(sorted(checkpoints))))
    return tuple(unchecked)
