"""What is wrong on the way to the versions of a Spark state store, and the batches it costs.

Invariant: which batches a finding costs becomes known while the versions are made: it stays open
until something takes its place, and every batch that is reached meanwhile is counted to it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from tidelog.errors import ConfigError, TidelogError
from tidelog.verify.problems import Check, Problem, problem_of

FALL_BACK: Final = (
    "bring the object back from a backup; until then Spark has to fall back to an older snapshot"
)
TWO_WAYS: Final = (
    "one of the two is wrong; restart the query from a batch that neither concerns, or find out "
    "which one with --against"
)


@dataclass(slots=True)
class Finding:
    """One error, and the batches it concerns."""

    error: TidelogError
    check: Check
    action: str | None = None
    unusable: list[int] = field(default_factory=list)
    doubtful: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Findings:
    """All findings of the state store `label`."""

    label: str
    _all: list[Finding] = field(default_factory=list)
    _breaks: list[Finding] = field(default_factory=list)
    _passed_over: list[Finding] = field(default_factory=list)
    _doubts: list[Finding] = field(default_factory=list)

    def breaks(self, error: TidelogError) -> None:
        """Nothing can be restored from here to the next whole snapshot."""
        self._add(self._breaks, Finding(error, Check.READABLE))

    def passed_over(self, error: TidelogError) -> None:
        """The line goes on without a snapshot, or without a changelog that cannot be told."""
        action = error.action if isinstance(error, ConfigError) else FALL_BACK
        self._add(self._passed_over, Finding(error, Check.READABLE, action))

    def contradicts(self, error: TidelogError, check: Check, so_far: list[int]) -> None:
        """Two things disagree: that concerns all batches from now on, and those `so_far`."""
        self._add(self._doubts, Finding(error, check, TWO_WAYS, doubtful=[*so_far]))

    def whole_snapshot(self) -> None:
        """What comes now can be restored from here."""
        self._breaks, self._passed_over = [], []

    def lost(self, batch: int) -> None:
        """A batch that cannot be restored was reached."""
        for finding in (*self._breaks, *self._passed_over):
            finding.unusable.append(batch)

    def restored(self, batch: int) -> None:
        """A batch that can be restored was reached."""
        for finding in (*self._passed_over, *self._doubts):
            finding.doubtful.append(batch)

    def problems(self) -> Iterator[Problem]:
        """All of them, once every version was reached."""
        for finding in self._all:
            error = finding.error
            words = (word.rstrip(",") for word in error.what.split() if "/" in word)
            problem = problem_of(error, list(words)[:1], check=finding.check, partition=self.label)
            yield replace(
                problem,
                unusable=tuple(finding.unusable),
                doubtful=tuple(sorted({*finding.doubtful})),
                action=finding.action,
            )

    def _add(self, kind: list[Finding], finding: Finding) -> None:
        kind.append(finding)
        self._all.append(finding)
