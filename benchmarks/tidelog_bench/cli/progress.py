"""What a running session shows: a bar with the time left on a terminal, a line per trial.

Invariant: standard output has the trials' lines or, with --json, the records; the bar is on
standard error, and only where that is a terminal.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import click

from tidelog.cli.output import Output, Step
from tidelog_bench.experiment import Experiment, Figure
from tidelog_bench.measurement import common, own
from tidelog_bench.report.numbers import number, settings
from tidelog_bench.session.plan import Step as TrialStep
from tidelog_bench.session.records import (
    CutRecord,
    FailureRecord,
    Record,
    SkipRecord,
    TrialRecord,
)

_SHOWN: Final = 3
"""Figures in the line of a trial."""


@dataclass(slots=True)
class Progress:
    """Shows a terminal, a file or a program how a session goes; a `Listener`."""

    output: Output
    experiments: Sequence[Experiment]
    steps: Sequence[TrialStep]
    """All that is to be done."""
    bar: Step
    step: TrialStep | None = None
    number: int = 0
    done_s: float = 0.0
    """What trials have taken so far."""

    def begin(self, step: TrialStep, number: int) -> None:
        """A trial begins."""
        self.step, self.number = step, number

    def tick(self, running_s: float, expected_s: float, left_s: float) -> None:
        """A trial goes on."""
        assert self.step is not None
        doing = title(self.step.measurement.name, self.step.variant)
        done_s = self.done_s + running_s
        self.bar(done_s, done_s + left_s, f"[{self.number}/{len(self.steps)}] {doing}")

    def recorded(self, record: Record, left_s: float) -> None:
        """Print what is of interest to people, or everything to programs."""
        if self.output.as_json:
            self.output.json_line(record)
            return
        if isinstance(record, TrialRecord):
            self.done_s += record.wall_s
            self.output.line(f"{self._head(record)}  {self._figures(record)}  ({_left(left_s)})")
        elif isinstance(record, FailureRecord):
            self.output.line(f"{self._head(record)}  FAILED")
            click.echo(record.error, err=True)
        elif isinstance(record, SkipRecord):
            self.output.line(
                f"{title(record.measurement, record.variant)}: skipped, {record.reason}"
            )
        elif isinstance(record, CutRecord):
            parts = [record.measurement, self._cell(record), f"pair {record.pair + 1}"]
            self.output.line(f"{', '.join(filter(None, parts))}  CUT: {record.reason}")

    def _head(self, record: TrialRecord | FailureRecord) -> str:
        what = title(record.measurement, record.variant)
        parts = [what, self._cell(record), f"pair {record.pair + 1}"]
        return f"[{self.number}/{len(self.steps)}] {', '.join(filter(None, parts))}"

    def _cell(self, record: TrialRecord | FailureRecord | CutRecord) -> str:
        """What tells a cell from the others of its measurement."""
        of = [s.cell.settings for s in self.steps if s.measurement.name == record.measurement]
        return settings(own(record.settings, common(of)))

    def _figures(self, record: TrialRecord) -> str:
        asked: dict[str, Figure] = {
            figure.name: figure
            for experiment in self.experiments
            if experiment.measurement.name == record.measurement
            for figure in experiment.figures[:_SHOWN]
            if figure.name in record.figures
        }
        return "  ".join(
            f"{figure.title} {number(record.figures[name])} {figure.unit}".rstrip()
            for name, figure in list(asked.items())[:_SHOWN]
        )


def title(measurement: str, variant: str) -> str:
    """A variant of a measurement, for people."""
    return f"{measurement} {variant}"


def duration(seconds: float) -> str:
    """Hours, minutes and seconds: 1:02:03 or 2:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _left(seconds: float) -> str:
    return f"{duration(seconds)} left"
