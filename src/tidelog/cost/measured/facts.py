"""The facts that a report is made of, as they stand in manifests, blocks and changes; runs of
checkpoints without a gap, and the materialization intervals seen in them.

Invariants: times are milliseconds since 1970 by the clock of the job, sizes bytes; tallies are
sums, so they add up in any order.

A run is of one generation and of slots that follow each other, so nothing that happened within it
is hidden: no restart, no pause, no peak; what a job does at the end of its data is no part of one:
its last checkpoint stands alone. An interval is reported only if both of its materializations fell
between checkpoints that are retained, so its start, its end and its fullest checkpoint are known;
no time is guessed beyond the straight line between two neighbours.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean

from tidelog.ids import SubtaskId

LogKey = tuple[int, SubtaskId]
"""The log of one subtask in one checkpoint: its slot, and whose log it is."""


@dataclass(frozen=True, slots=True)
class Point:
    """One subtask in one retained checkpoint."""

    slot: int
    created_ms: int
    seqno: int
    """Changes logged when the barrier passed."""
    upto: int
    """Changes below are in the materialization; 0 without one."""
    table_bytes: int
    """Bytes of the files of the materialization; 0 without one."""
    log_bytes: int
    """Bytes of log that the manifest names or holds, which a restore reads."""
    updates: int = 0
    """Updates that were combined into the changes since updates are counted; 0: they are not."""


@dataclass(frozen=True, slots=True)
class MeasuredSnapshot:
    """One retained checkpoint."""

    slot: int
    generation: int
    created_ms: int
    manifest_bytes: int
    final: bool
    """The job ended with it: what it does at the end of its data is in this one alone."""
    segments: frozenset[str]
    points: Mapping[SubtaskId, Point]


@dataclass(frozen=True, slots=True)
class Tally:
    """Sums over blocks; `raw_bytes` is their payload before compression, without headers."""

    blocks: int = 0
    changes: int = 0
    raw_bytes: int = 0
    stored_bytes: int = 0
    deletes: int = 0
    """Changes that delete a row, where they are counted."""

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.blocks + other.blocks,
            self.changes + other.changes,
            self.raw_bytes + other.raw_bytes,
            self.stored_bytes + other.stored_bytes,
            self.deletes + other.deletes,
        )


@dataclass(frozen=True, slots=True)
class BlockFacts:
    """The blocks that retained checkpoints name."""

    by_log: Mapping[LogKey, Tally] = field(default_factory=dict)
    """The blocks of each subtask in each checkpoint."""
    distinct: Mapping[SubtaskId, Tally] = field(default_factory=dict)
    """The blocks of each subtask, each counted once, however many checkpoints name it."""


@dataclass(frozen=True, slots=True)
class MeasuredRate:
    """How fast a number grew over some runs."""

    count: float
    seconds: float

    @property
    def per_s(self) -> float | None:
        """Figure per second; None when no time passed."""
        return self.count / self.seconds if self.seconds > 0 else None


def contiguous_runs(snapshots: Iterable[MeasuredSnapshot]) -> list[list[MeasuredSnapshot]]:
    """Split a history, oldest first, at missing checkpoints, at restarts and at the job's end."""
    runs: list[list[MeasuredSnapshot]] = []
    last: MeasuredSnapshot | None = None
    for snapshot in snapshots:
        follows = last is not None and (
            snapshot.generation == last.generation
            and snapshot.slot == last.slot + 1
            and snapshot.created_ms >= last.created_ms
            and not snapshot.final
        )
        if not follows:
            runs.append([])
        runs[-1].append(snapshot)
        last = snapshot
    return runs


def seconds(runs: Iterable[Sequence[MeasuredSnapshot]]) -> float:
    """Time that runs cover."""
    return sum(run[-1].created_ms - run[0].created_ms for run in runs) / 1000


def points_of(run: Iterable[MeasuredSnapshot], who: SubtaskId) -> list[Point]:
    """A subtask in each checkpoint of a run that has it."""
    return [snapshot.points[who] for snapshot in run if who in snapshot.points]


def change_rate(by_run: Iterable[Sequence[Point]]) -> MeasuredRate:
    """Changes of a subtask over the time between its first and last checkpoint of each run."""
    changes = duration_ms = 0
    for points in by_run:
        changes += points[-1].seqno - points[0].seqno
        duration_ms += points[-1].created_ms - points[0].created_ms
    return MeasuredRate(changes, duration_ms / 1000)


def mean(values: Sequence[float]) -> float | None:
    """None of nothing."""
    return fmean(values) if values else None


@dataclass(frozen=True, slots=True)
class Cut:
    """A materialization, and the first checkpoint of the run that builds on it."""

    upto: int
    at_ms: float | None
    """When the table was frozen, in milliseconds; None when that was before the run."""
    first: int
    """Index of the checkpoint in the run."""


@dataclass(frozen=True, slots=True)
class MeasuredInterval:
    """From one materialization of a subtask to the next one that a checkpoint builds on."""

    who: SubtaskId
    start_ms: float
    end_ms: float
    changes: int
    """Logged in between."""
    checkpoints: int
    """Checkpoints that build on the first of both, and so have the log of this interval."""
    peak_bytes: int
    """Bytes of log in the fullest of these checkpoints."""
    peak_checkpoint: int

    @property
    def seconds(self) -> float:
        return (self.end_ms - self.start_ms) / 1000

    @property
    def peak_log(self) -> LogKey:
        return self.peak_checkpoint, self.who


def intervals(
    who: SubtaskId, points: Sequence[Point], by_log: Mapping[LogKey, Tally]
) -> list[MeasuredInterval]:
    """The intervals of a subtask that lie within a run, oldest first."""
    complete: list[MeasuredInterval] = []
    for start, end in pairwise(cuts(points)):
        if start.at_ms is None or end.at_ms is None or end.at_ms <= start.at_ms:
            continue
        within = points[start.first : end.first]
        sizes = {p.slot: by_log.get((p.slot, who), Tally()).stored_bytes for p in within}
        # Of equals the last one: it is nearest to the end of the interval.
        peak = max(within, key=lambda point: (sizes[point.slot], point.slot))
        interval = MeasuredInterval(
            who=who,
            start_ms=start.at_ms,
            end_ms=end.at_ms,
            changes=end.upto - start.upto,
            checkpoints=len(within),
            peak_bytes=sizes[peak.slot],
            peak_checkpoint=peak.slot,
        )
        complete.append(interval)
    return complete


def cuts(points: Sequence[Point]) -> list[Cut]:
    """The materializations that the checkpoints of a run build on, in order."""
    run_cuts: list[Cut] = []
    for index, point in enumerate(points):
        if not run_cuts or point.upto != run_cuts[-1].upto:
            run_cuts.append(Cut(point.upto, _passed_ms(points, point.upto), index))
    return run_cuts


def _passed_ms(points: Sequence[Point], seqno: int) -> float | None:
    """When the subtask logged its change `seqno`, in milliseconds; None: before the run."""
    if not points or seqno < points[0].seqno or seqno == 0:
        return None
    before = points[0]
    for point in points:
        if point.seqno >= seqno:
            changes = point.seqno - before.seqno
            share = (seqno - before.seqno) / changes if changes else 0.0
            return before.created_ms + share * (point.created_ms - before.created_ms)
        before = point
    return None
