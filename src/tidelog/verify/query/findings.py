"""What is wrong on the way to the versions of a Spark state store, and the batches it costs.

Invariant: which batches a finding costs becomes known while the versions are made: it stays open
until something takes its place, and every batch that is reached meanwhile is counted to it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from tidelog.checkpoint.finding import Finding
from tidelog.checkpoint.invariants import Invariant
from tidelog.errors import TidelogError
from tidelog.spark.format.changelog import UnreadableCodecError
from tidelog.verify.results import CheckName, finding_of

FALL_BACK: Final = (
    "bring the object back from a backup; until then Spark has to fall back to an older snapshot"
)
TWO_WAYS: Final = (
    "one of the two is wrong; restart the query from a batch that neither concerns, or compare "
    "both with expected values: docs/guides/verify.md"
)


@dataclass(slots=True)
class _Open:
    """A finding, and the batches counted to it so far."""

    finding: Finding
    unusable: list[int] = field(default_factory=list)
    doubtful: list[int] = field(default_factory=list)


@dataclass(slots=True)
class StoreFindings:
    """All findings of the state store `label`."""

    label: str
    _all: list[_Open] = field(default_factory=list)
    _breaks: list[_Open] = field(default_factory=list)
    _passed_over: list[_Open] = field(default_factory=list)
    _doubts: list[_Open] = field(default_factory=list)

    def breaks(self, error: TidelogError) -> None:
        """Nothing can be restored from here to the next whole snapshot."""
        self._open(self._breaks, error)

    def passed_over(self, error: TidelogError) -> None:
        """The replay goes on without a snapshot, or without a changelog in an unreadable codec."""
        action = error.action if isinstance(error, UnreadableCodecError) else FALL_BACK
        self._open(self._passed_over, error, action=action)

    def contradicts(self, error: TidelogError, check: CheckName, so_far: list[int]) -> None:
        """Two things disagree: that concerns all batches from now on, and those in `so_far`."""
        found = self._open(self._doubts, error, check=check, action=TWO_WAYS)
        found.doubtful += so_far

    def whole_snapshot(self) -> None:
        """What comes now can be restored from here."""
        self._breaks, self._passed_over = [], []

    def lost(self, batch: int) -> None:
        """A batch that cannot be restored was reached."""
        for found in (*self._breaks, *self._passed_over):
            found.unusable.append(batch)

    def restored(self, batch: int) -> None:
        """A batch that can be restored was reached."""
        for found in (*self._passed_over, *self._doubts):
            found.doubtful.append(batch)

    def findings(self) -> Iterator[Finding]:
        """All findings, once every version was reached."""
        for found in self._all:
            doubtful = tuple(sorted({*found.doubtful}))
            yield replace(found.finding, unusable=tuple(found.unusable), doubtful=doubtful)

    def _open(
        self,
        kind: list[_Open],
        error: TidelogError,
        *,
        check: str = Invariant.READABLE,
        action: str | None = None,
    ) -> _Open:
        words = (word.rstrip(",") for word in error.what.split() if "/" in word)
        finding = finding_of(error, list(words)[:1], check=check, partition=self.label)
        found = _Open(replace(finding, action=action))
        kind.append(found)
        self._all.append(found)
        return found
