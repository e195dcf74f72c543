"""A session: the trials of a plan, one after the other, each recorded when it has ended.

Invariants: a trial runs in a fresh process and an empty directory; one that fails is recorded and
does not stop the others; nothing that was recorded is lost when the session is interrupted.
"""

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

from tidelog.effects import Clock
from tidelog_bench import statistics
from tidelog_bench.experiment import Experiment, Ratio
from tidelog_bench.measurement import Measurement, Reading, Trial
from tidelog_bench.session import environment
from tidelog_bench.session.children import Child, ChildError
from tidelog_bench.session.plan import Missing, Step, TimeLeft
from tidelog_bench.session.records import (
    FailureRecord,
    Record,
    ResultRecord,
    SessionRecord,
    SkipRecord,
    TrialRecord,
    append,
    trials,
)

_LOOK_S: Final = 0.25
_PATIENCE: Final = 20.0
"""A trial that takes so many times what was expected hangs ..."""
_PATIENCE_S: Final = 600.0
"""... but not before so many seconds."""
_OUTPUT_LINES: Final = 15


class Listener(Protocol):
    """Follows the trials of a session."""

    def begin(self, step: Step, number: int) -> None:
        """A trial begins; it is the `number`-th, from 1."""
        ...

    def tick(self, running_s: float, expected_s: float, left_s: float) -> None:
        """A trial has been running for so long; all that is left takes so long."""
        ...

    def recorded(self, record: Record, left_s: float) -> None:
        """A record was appended."""
        ...


@dataclass(slots=True)
class Session:
    """Runs steps and appends to a file."""

    path: Path
    experiments: Sequence[Experiment]
    seed: int
    clock: Clock
    listener: Listener
    records: list[Record]
    """All of this session so far; grows."""
    interrupted: Callable[[], bool] = lambda: False
    """Looked at several times a second; a trial that runs is given up."""
    remaining: TimeLeft = field(default_factory=TimeLeft)
    failures: int = 0

    def begin(self, asked: SessionRecord, gaps: Iterable[Missing]) -> None:
        """Record what was asked for, and what of it cannot run here."""
        self._record(asked, 0.0)
        for gap in gaps:
            record = SkipRecord(gap.measurement, gap.variant, gap.reason)
            if record not in self.records:
                self._record(record, 0.0)

    def run(self, steps: Sequence[Step]) -> None:
        """Run all steps; raises KeyboardInterrupt when interrupted."""
        for number, step in enumerate(steps):
            if self.interrupted():
                raise KeyboardInterrupt
            self.listener.begin(step, number + 1)
            after = steps[number + 1 :]
            record = self._trial(step, after)
            self._record(record, self.remaining.total(after))
            if not after or after[0].cell is not step.cell:
                self._summarise(step)

    def _record(self, record: Record, left_s: float) -> None:
        append(self.path, record)
        self.records.append(record)
        self.listener.recorded(record, left_s)

    def _trial(self, step: Step, after: Sequence[Step]) -> TrialRecord | FailureRecord:
        with tempfile.TemporaryDirectory(prefix="tidelog-bench-", ignore_cleanup_errors=True) as at:
            room = Path(at)
            (room / "trial").mkdir()
            started, load = timestamp(self.clock), environment.load()
            begun, before = self.clock.monotonic(), environment.ProcessorTime.now()
            try:
                reading = self._reading(step, room, self.remaining.total(after))
            except ChildError as error:
                self.failures += 1
                text = "\n".join(filter(None, [_tail(room / "output"), str(error).strip()]))
                return FailureRecord(
                    step.measurement.name, dict(step.cell.settings), step.variant, step.pair, text
                )
            taken = self.clock.monotonic() - begun
            stolen = environment.ProcessorTime.now().stolen_since(before)
        self.remaining.learn(step, taken)
        return TrialRecord(
            measurement=step.measurement.name,
            settings=dict(step.cell.settings),
            variant=step.variant,
            pair=step.pair,
            position=step.position,
            seed=self.seed + step.pair,
            started=started,
            wall_s=round(taken, 2),
            load=load,
            stolen=stolen,
            figures=dict(reading.figures),
            series={name: list(points) for name, points in reading.series.items()},
            notes=dict(reading.notes),
        )

    def _reading(self, step: Step, room: Path, later_s: float) -> Reading:
        trial = Trial(step.cell.settings, step.variant, self.seed + step.pair, room / "trial")
        expected = self.remaining.of(step)
        patience = max(_PATIENCE_S, _PATIENCE * expected)
        begun = self.clock.monotonic()
        child: Child[Reading] = Child(
            step.measurement.measure, trial, output=room / "output", own_group=True
        )
        with child:
            while not child.wait(_LOOK_S):
                running = self.clock.monotonic() - begun
                self.listener.tick(running, expected, max(0.0, expected - running) + later_s)
                if self.interrupted():
                    raise KeyboardInterrupt
                if running > patience:
                    raise ChildError(f"no answer after {running:.0f} s; {expected:.0f} expected")
            return child.result()

    def _summarise(self, step: Step) -> None:
        settings = dict(step.cell.settings)
        mine = [
            trial
            for trial in trials(self.records)
            if trial.measurement == step.measurement.name and trial.settings == settings
        ]
        self._record(
            ResultRecord(
                step.measurement.name,
                settings,
                statistics.figures(mine),
                statistics.ratios(mine, ratios_of(step.measurement, self.experiments)),
            ),
            0.0,
        )


def timestamp(clock: Clock) -> str:
    """Now, in UTC to the second."""
    return datetime.fromtimestamp(clock.now_ms() / 1e3, UTC).isoformat(timespec="seconds")


def ratios_of(measurement: Measurement, experiments: Iterable[Experiment]) -> list[Ratio]:
    """What the experiments divide that read a measurement; each ratio once."""
    readers = (e for e in experiments if e.measurement.name == measurement.name)
    return list(dict.fromkeys(ratio for reader in readers for ratio in reader.ratios))


def _tail(output: Path) -> str:
    """The last lines of what the child printed."""
    if not output.exists():
        return ""
    return "\n".join(output.read_text(errors="replace").splitlines()[-_OUTPUT_LINES:])
