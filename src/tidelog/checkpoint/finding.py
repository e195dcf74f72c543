"""What is wrong with a store: one representation for every command that checks one.

Invariant: findings that say the same of the same object are one, with all the partitions and
checkpoints they concern, so one damaged object is reported once.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from tidelog.errors import CorruptObjectError, FormatVersionError, ObjectNotFoundError, RestoreError
from tidelog.storage import object_names

UNREADABLE: Final = (CorruptObjectError, FormatVersionError, ObjectNotFoundError, RestoreError)
"""Errors that are findings about stored objects; any other error ends a check."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong; `where` names the object, or the part of one."""

    check: str
    """A name of `checkpoint.invariants.Invariant` or of `verify.results.CheckName`."""
    where: str
    expected: str
    found: str
    partitions: tuple[str, ...] = ()
    """The subtasks (of a Spark query: partitions of an operator) that it concerns."""
    unusable: tuple[int, ...] = ()
    """Numbers of checkpoints (of a Spark query: batches) that cannot be restored because of it."""
    doubtful: tuple[int, ...] = ()
    """Checkpoints that can be restored, but may not hold what they should."""
    newer_format: bool = False
    """The object was written by a newer release; it need not be damaged."""
    action: str | None = None
    """What to do next, where it is not to restore another checkpoint."""

    def __str__(self) -> str:
        return f"{self.where} ({self.check}): expected {self.expected}; found {self.found}"

    @property
    def checkpoints(self) -> set[int]:
        """All checkpoints it concerns."""
        return {*self.unusable, *self.doubtful}


@dataclass(slots=True)
class Findings:
    """Collects findings; equal ones are merged, in the order they were first seen."""

    _by_text: dict[tuple[str, str, str, str], Finding] = field(default_factory=dict)

    def add(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            key = finding.check, finding.where, finding.expected, finding.found
            earlier = self._by_text.get(key)
            self._by_text[key] = finding if earlier is None else _merged(earlier, finding)

    def all(self) -> tuple[Finding, ...]:
        """The findings in the order in which they were first added."""
        return tuple(self._by_text.values())

    def without_repeats(self) -> tuple[Finding, ...]:
        """All but those about an object of which another finding names the checkpoints it costs."""
        costly = {finding.where for finding in self.all() if finding.checkpoints}
        return tuple(
            finding for finding in self.all() if finding.checkpoints or finding.where not in costly
        )


def without_changes(
    findings: Iterable[Finding], listed: Collection[int], present: Collection[int]
) -> Iterator[Finding]:
    """Findings without what a running job has changed while they were made.

    `listed` are the checkpoints that were there before, `present` those that are there after. One
    that is gone took its objects with it, which is no damage; a slot that appeared was no gap.
    """
    for finding in findings:
        slot = object_names.slot_of(finding.where)
        if slot is not None and slot in present and slot not in listed:
            continue
        remaining = replace(
            finding,
            unusable=tuple(filter(present.__contains__, finding.unusable)),
            doubtful=tuple(filter(present.__contains__, finding.doubtful)),
        )
        if remaining.checkpoints or not finding.checkpoints:
            yield remaining


def _merged(one: Finding, other: Finding) -> Finding:
    return replace(
        one,
        partitions=tuple(sorted({*one.partitions, *other.partitions})),
        unusable=tuple(sorted({*one.unusable, *other.unusable})),
        doubtful=tuple(sorted({*one.doubtful, *other.doubtful})),
        newer_format=one.newer_format or other.newer_format,
        action=one.action or other.action,
    )
