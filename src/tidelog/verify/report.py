"""The verdict of a verification: which checkpoints can be relied on, and what is wrong.

Invariants: a pure function of what was found; a checkpoint is sound only when no problem concerns
it; the verification passes only when nothing is wrong and something was verified.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tidelog.checkpoint.finding import Finding
from tidelog.spark.checkpoint.location import Layout
from tidelog.verify.fingerprint import Fingerprint, combined
from tidelog.verify.results import Restored, UnitResult

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
    """Slot, or batch."""
    checkpoint_id: int | None
    verdict: Verdict
    partitions: int
    rows: int | None
    changes: int
    equal: int
    """Partitions that were restored in two ways, with the same result."""
    different: int
    unchecked: int
    contents: tuple[Content, ...]


@dataclass(frozen=True, slots=True)
class VerifyReport:
    url: str
    layout: Layout
    engine: str
    checkpoints: tuple[CheckpointReport, ...]
    problems: tuple[Finding, ...]
    unchecked: tuple[tuple[str, str, tuple[int, ...]], ...]
    """(partition, why it was not restored a second way, checkpoints)."""
    all_seen: bool = True
    """Whether every checkpoint was looked at, not only a chosen one."""

    @property
    def passed(self) -> bool:
        """Nothing is wrong with the store, and at least one checkpoint is there to say so of."""
        return not self.problems and self.newest_sound is not None

    @property
    def newest_sound(self) -> int | None:
        """The newest checkpoint that nothing speaks against."""
        sound = (c.checkpoint for c in self.checkpoints if c.verdict == "sound")
        return max(sound, default=None)


def checkpoint_reports(
    ids: Mapping[int, int | None],
    results: Sequence[UnitResult],
    problems: Sequence[Finding],
    present: Collection[int],
    expired: Collection[int] = (),
) -> tuple[CheckpointReport, ...]:
    """The verdicts on checkpoints, given their ids, in ascending order.

    `present` are those that are there after it all: a running job drops others. `expired` have
    lost state to Spark's own clean-up.
    """
    unusable = {number for problem in problems for number in problem.unusable}
    doubtful = {number for problem in problems for number in problem.doubtful}
    restored: dict[int, list[Restored]] = defaultdict(list)
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

    return tuple(
        _checkpoint_report(number, ids[number], verdict(number), restored[number])
        for number in sorted(ids)
    )


def _checkpoint_report(
    number: int, checkpoint_id: int | None, verdict: Verdict, parts: list[Restored]
) -> CheckpointReport:
    redundancy = [part.redundancy for part in parts]
    total = _total(parts)
    return CheckpointReport(
        checkpoint=number,
        checkpoint_id=checkpoint_id,
        verdict=verdict,
        partitions=len(parts),
        rows=None if total is None else total.rows,
        changes=sum(part.changes for part in parts),
        equal=redundancy.count("equal"),
        different=redundancy.count("different"),
        unchecked=redundancy.count("not checked"),
        contents=_contents(parts),
    )


def _contents(parts: Iterable[Restored]) -> tuple[Content, ...]:
    by_operator: dict[str, list[Restored]] = defaultdict(list)
    for part in parts:
        by_operator[part.operator].append(part)
    return tuple(
        Content(operator, len(found), total.rows, str(total))
        if total is not None
        else Content(operator, len(found), None, None)
        for operator, found in sorted(by_operator.items())
        for total in [_total(found)]
    )


def _total(parts: Iterable[Restored]) -> Fingerprint | None:
    """The fingerprint of all rows; None when that of a part is not known."""
    found = [part.fingerprint for part in parts]
    known = [each for each in found if each is not None]
    return combined(known) if len(known) == len(found) else None


def not_checked(
    results: Iterable[UnitResult], present: Collection[int]
) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
    """Partitions without a second way, each reason once with the checkpoints it holds for."""
    reasons: dict[tuple[str, str], set[int]] = defaultdict(set)
    for result in results:
        for part in result.restored:
            if part.reason is not None:
                reasons[part.partition, part.reason].update(part.checkpoints)
    found = ((*key, tuple(sorted(n & set(present)))) for key, n in sorted(reasons.items()))
    return tuple(each for each in found if each[2])
