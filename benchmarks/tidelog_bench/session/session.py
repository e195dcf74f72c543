"""A session: the trials of a plan, one after the other, each recorded when it has ended; and how it
goes, for a terminal, a file or a program.

Invariants: a trial runs in an empty directory, and in a fresh process unless its experiment is a
resident one; one that fails is recorded and does not stop the others; nothing that was
recorded is lost when the session is interrupted. A session with a limit ends in time: what does not
fit is cut, and recorded as cut.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Final

import click

from tidelog.cli.output import Output
from tidelog.cli.output import Step as Bar
from tidelog.cli.values import span
from tidelog.effects import Clock
from tidelog_bench.experiment import Reading, Trial, common
from tidelog_bench.report.numbers import label, number
from tidelog_bench.session import environment
from tidelog_bench.session.children import Child, ChildError
from tidelog_bench.session.plan import PairKey, Step, TimeLeft, may_end, timestamp
from tidelog_bench.session.records import (
    CutRecord,
    FailureRecord,
    Record,
    SessionRecord,
    SkipRecord,
    TrialRecord,
    append,
)

_LOOK_S: Final = 0.25
_PATIENCE: Final = 20.0
"""A trial that takes so many times what was expected hangs ..."""
_PATIENCE_S: Final = 600.0
"""... but not before so many seconds."""
_OUTPUT_LINES: Final = 15
_SHOWN: Final = 3
"""Figures in the line of a trial."""


@dataclass(slots=True)
class Progress:
    """A line per trial, or with --json the records, and a bar with the time left on a terminal."""

    output: Output
    steps: Sequence[Step]
    """All that is to be done."""
    bar: Bar
    step: Step | None = None
    number: int = 0
    done_s: float = 0.0
    """What trials have taken so far."""

    def begin(self, step: Step, number: int) -> None:
        """A trial begins; it is the `number`-th, from 1."""
        self.step, self.number = step, number

    def tick(self, running_s: float, left_s: float) -> None:
        """A trial has been running for so long; all that is left takes so long."""
        assert self.step is not None
        doing = f"{self.step.experiment.name} {self.step.variant}"
        done_s = self.done_s + running_s
        self.bar(done_s, done_s + left_s, f"[{self.number}/{len(self.steps)}] {doing}")

    def recorded(self, record: Record, left_s: float) -> None:
        if self.output.as_json:
            self.output.json_line(record)
        elif isinstance(record, TrialRecord):
            self.done_s += record.wall_s
            figures = self._figures(record)
            self.output.line(f"{self._head(record)}  {figures}  ({span(left_s)} left)")
        elif isinstance(record, FailureRecord):
            self.output.line(f"{self._head(record)}  FAILED")
            click.echo(record.error, err=True)
        elif isinstance(record, SkipRecord):
            self.output.line(f"{record.experiment} {record.variant}: skipped, {record.reason}")
        elif isinstance(record, CutRecord):
            self.output.line(f"{self._where(record, record.experiment)}  CUT: {record.reason}")

    def _head(self, record: TrialRecord | FailureRecord) -> str:
        where = self._where(record, f"{record.experiment} {record.variant}")
        return f"[{self.number}/{len(self.steps)}] {where}"

    def _where(self, record: TrialRecord | FailureRecord | CutRecord, what: str) -> str:
        """What tells a cell from the others of its experiment, and the pair."""
        of = [s.cell.settings for s in self.steps if s.experiment.name == record.experiment]
        cell = label(record.settings, common(of))
        return ", ".join(filter(None, [what, cell, f"pair {record.pair + 1}"]))

    def _figures(self, record: TrialRecord) -> str:
        assert self.step is not None
        figures = [f for f in self.step.experiment.figures if f.name in record.figures]
        return "  ".join(
            f"{figure.title} {number(record.figures[figure.name])} {figure.unit}".rstrip()
            for figure in figures[:_SHOWN]
        )


class _OutOfTimeError(Exception):
    """A trial had not ended when its experiment had to."""


@dataclass(slots=True)
class Session:
    """Runs steps and appends to a file."""

    path: Path
    asked: SessionRecord
    clock: Clock
    progress: Progress
    records: list[Record]
    """All of this session so far; grows."""
    remaining: TimeLeft = field(default_factory=TimeLeft)
    failures: int = 0
    cuts: int = 0
    """Pairs that were cut."""
    _interrupted: Callable[[], bool] = field(default=lambda: False, init=False)
    _ends: float = field(default=inf, init=False)
    _experiment_ends: float = field(default=inf, init=False)
    _cut: set[PairKey] = field(default_factory=set, init=False)
    _residents: dict[Path, Child] = field(default_factory=dict, init=False)
    """The processes that go on after a trial, by the directory that their trials share."""
    _room: Path = field(default=Path(), init=False)

    def begin(self, skipped: Iterable[SkipRecord]) -> None:
        """Record what was asked for, and what of it cannot run here."""
        self._record(self.asked, 0.0)
        for record in skipped:
            if record not in self.records:
                self._record(record, 0.0)

    def run(self, steps: Sequence[Step], interrupted: Callable[[], bool]) -> None:
        """Run all steps, as far as there is time; raises KeyboardInterrupt when interrupted, which
        is looked at several times a second: the trial that runs is given up.
        """
        self._interrupted = interrupted
        if self.asked.limit_s is not None:
            self._ends = self.clock.monotonic() + self.asked.limit_s
        with tempfile.TemporaryDirectory(prefix="tidelog-bench-", ignore_cleanup_errors=True) as at:
            self._room = Path(at)
            try:
                for number in range(len(steps)):
                    self._step(number, steps)
            finally:
                self._leave()

    def _step(self, number: int, steps: Sequence[Step]) -> None:
        if self._interrupted():
            raise KeyboardInterrupt
        step, after = steps[number], steps[number + 1 :]
        before = steps[number - 1] if number else None
        begins = before is None or before.experiment is not step.experiment
        if before is not None and before.cell is not step.cell:
            if self.asked.limit_s is None or not step.experiment.resident:
                self._leave()
            for kept in self._room.iterdir():
                shutil.rmtree(kept, ignore_errors=True)
        if begins:
            now = self.clock.monotonic()
            self._experiment_ends = may_end(steps[number:], self.remaining, now, self._ends)
        if step.pair_key in self._cut or self._has_no_time(steps[number:], first=begins):
            return
        self.progress.begin(step, number + 1)
        record = self._trial(step, after)
        self._record(record, self._left_s(after))

    def _has_no_time(self, steps: Sequence[Step], *, first: bool) -> bool:
        """Whether the pair that begins here is cut; the first one of an experiment is tried."""
        if first or steps[0].position > 0:
            return False
        pair = [step for step in steps if step.pair_key == steps[0].pair_key]
        needed, left = self.remaining.total(pair), self._seconds_left()
        if needed > left:
            reason = f"{max(0.0, left):.0f} s were left for {needed:.0f} s"
            self._record(self._cut_pair(steps[0], reason), self._left_s(steps))
        return needed > left

    def _seconds_left(self) -> float:
        """Until the experiment has to end."""
        return self._experiment_ends - self.clock.monotonic()

    def _cut_pair(self, step: Step, reason: str) -> CutRecord:
        self._cut.add(step.pair_key)
        self.cuts += 1
        return CutRecord(reason=reason, **step.of_pair)

    def _left_s(self, steps: Iterable[Step], more_s: float = 0.0) -> float:
        """How long these take: no longer than the session may."""
        limit_s = max(0.0, self._ends - self.clock.monotonic())
        return min(more_s + self.remaining.total(steps), limit_s)

    def _record(self, record: Record, left_s: float) -> None:
        append(self.path, record)
        self.records.append(record)
        self.progress.recorded(record, left_s)

    def _trial(self, step: Step, after: Sequence[Step]) -> TrialRecord | FailureRecord | CutRecord:
        kept = self._room / step.variant
        kept.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._room, ignore_cleanup_errors=True) as at:
            room = Path(at)
            (room / "trial").mkdir()
            started, load = timestamp(self.clock), environment.load()
            begun, before = self.clock.monotonic(), environment.processor_time()
            try:
                with self._process(step, room) as child:
                    seed, directory = self.asked.seed + step.pair, room / "trial"
                    trial = Trial(step.cell.settings, step.variant, seed, directory, kept)
                    reading = self._reading(child, step, trial, after)
            except _OutOfTimeError as error:
                return self._cut_pair(step, str(error))
            except ChildError as error:
                self.failures += 1
                shutil.rmtree(kept, ignore_errors=True)
                said = "\n".join(filter(None, [_tail(room / "output"), str(error).strip()]))
                return FailureRecord(variant=step.variant, error=said, **step.of_pair)
            taken = self.clock.monotonic() - begun
            stolen = environment.stolen_since(before)
        self.remaining.learn(step, taken)
        return TrialRecord(
            **step.of_pair,
            variant=step.variant,
            position=step.position,
            seed=self.asked.seed + step.pair,
            started=started,
            wall_s=round(taken, 2),
            load=load,
            stolen=stolen,
            figures=dict(reading.figures),
            notes=dict(reading.notes),
        )

    @contextmanager
    def _process(self, step: Step, room: Path) -> Iterator[Child]:
        """A process for a trial: a fresh one, or the one of its cell and variant that goes on."""
        if not step.experiment.resident:
            with Child(output=room / "output", own_group=True) as child:
                yield child
            return
        # Where time is short, all of them share a JVM.
        name = self._room / (step.variant if self.asked.limit_s is None else "all")
        if name not in self._residents:
            self._residents[name] = Child(own_group=True, output=name.with_suffix(".output"))
        try:
            yield self._residents[name]
        except BaseException:
            # It may still be busy, or broken.
            shutil.copyfile(name.with_suffix(".output"), room / "output")
            self._residents.pop(name).kill()
            raise

    def _leave(self) -> None:
        """End the processes that went on."""
        while self._residents:
            self._residents.popitem()[1].close()

    def _reading(self, child: Child, step: Step, trial: Trial, after: Sequence[Step]) -> Reading:
        expected = self.remaining.of(step)
        patience = max(_PATIENCE_S, _PATIENCE * expected)
        begun = self.clock.monotonic()
        child.call(step.experiment.measure, trial)
        while not child.wait(_LOOK_S):
            running = self.clock.monotonic() - begun
            self.progress.tick(running, self._left_s(after, max(0.0, expected - running)))
            if self._interrupted():
                raise KeyboardInterrupt
            if self._seconds_left() < 0:
                raise _OutOfTimeError(f"{step.variant} was given up after {running:.0f} s")
            if running > patience:
                raise ChildError(f"no answer after {running:.0f} s; {expected:.0f} expected")
        found: Reading = child.result()
        return found


def _tail(output: Path) -> str:
    if not output.exists():
        return ""
    return "\n".join(output.read_text(errors="replace").splitlines()[-_OUTPUT_LINES:])
