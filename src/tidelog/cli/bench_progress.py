"""What a running session shows: a bar with the time left on a terminal, a line per trial.

Invariant: standard output has the trials' lines or, with --json, the records; the bar is on
standard error, and only where that is a terminal.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

import click

from tidelog.bench.experiment import Experiment, Figure
from tidelog.bench.plan import Step
from tidelog.bench.records import FailureRecord, Record, SkipRecord, TrialRecord
from tidelog.bench.report.numbers import number, settings
from tidelog.bench.settings import common, own
from tidelog.cli.output import Output

_SHOWN: Final = 3
"""Figures in the line of a trial."""


class Bar(Protocol):
    """Shows how far a session is."""

    def __call__(self, doing: str, done_s: float, left_s: float) -> None: ...


@dataclass(slots=True)
class Progress:
    """Tells a terminal, a file or a program how a session goes; a `Listener`."""

    output: Output
    experiments: Sequence[Experiment]
    steps: Sequence[Step]
    """All that is to be done."""
    bar: Bar
    step: Step | None = None
    number: int = 0
    done_s: float = 0.0
    """What trials have taken so far."""

    def begin(self, step: Step, number: int) -> None:
        """A trial begins."""
        self.step, self.number = step, number

    def tick(self, running_s: float, expected_s: float, left_s: float) -> None:
        """A trial goes on."""
        assert self.step is not None
        doing = title(self.step.measurement.name, self.step.variant)
        self.bar(f"[{self.number}/{len(self.steps)}] {doing}", self.done_s + running_s, left_s)

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

    def _head(self, record: TrialRecord | FailureRecord) -> str:
        what = title(record.measurement, record.variant)
        parts = [what, self._cell(record), f"pair {record.pair + 1}"]
        return f"[{self.number}/{len(self.steps)}] {', '.join(filter(None, parts))}"

    def _cell(self, record: TrialRecord | FailureRecord) -> str:
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


@contextmanager
def bar(output: Output) -> Iterator[Bar]:
    """A bar on a terminal, nothing elsewhere."""
    if output.as_json or not sys.stderr.isatty():
        yield lambda doing, done_s, left_s: None
        return
    # Heavy: only a terminal pays for it.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("", total=1.0, left="")

        def update(doing: str, done_s: float, left_s: float) -> None:
            shown.update(
                task,
                description=doing,
                completed=done_s,
                total=max(done_s + left_s, 1e-9),
                left=_left(left_s),
            )

        yield update


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
