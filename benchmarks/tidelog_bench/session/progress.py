"""How a session goes, for a terminal, a file or a program."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import click

from tidelog.cli.output import Output
from tidelog.cli.output import Step as Bar
from tidelog.cli.values import span
from tidelog_bench.experiment import common
from tidelog_bench.report.numbers import label, number
from tidelog_bench.session.plan import Step
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
            line = f"{self._head(record)}  {self._figures(record)}  ({span(left_s)} left)"
            self.output.line(line)
        elif isinstance(record, FailureRecord):
            self.output.line(f"{self._head(record)}  FAILED")
            click.echo(record.error, err=True)
        elif isinstance(record, SkipRecord):
            self.output.line(f"{record.experiment} {record.variant}: skipped, {record.reason}")
        elif isinstance(record, CutRecord):
            where = self._where(record, record.experiment)
            self.output.line(f"{where}  CUT: {record.reason}")

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
