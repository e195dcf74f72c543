"""What a session does: the trials that a user asks for or that an interrupted session lacks, in
which order, how long they take, and how long they may take.

Invariants: the variants of a pair run one after the other, every other pair in reverse order; a
pair counts as done only when all its variants are, so no ratio is formed across an interruption; a
session goes on only where it began: the same code of its experiments, the same processor.
"""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec

from tidelog.effects import Clock
from tidelog.errors import ConfigError
from tidelog_bench.experiment import Cell, Experiment, Setting, Size
from tidelog_bench.experiments import chosen, own_job
from tidelog_bench.session import environment
from tidelog_bench.session.records import (
    Record,
    SessionRecord,
    SkipRecord,
    TrialRecord,
    opened,
    pairs_needed,
    trials,
)
from tidelog_bench.session.sources import digest

QUICK_S: Final = 285.0
"""What a quick session of one pair may take: five minutes with what begins and ends it."""
PairKey = tuple[str, str, int]
"""Experiment, cell and pair."""


def timestamp(clock: Clock) -> str:
    """Now, in UTC to the second."""
    return datetime.fromtimestamp(clock.now_ms() / 1e3, UTC).isoformat(timespec="seconds")


def of_session(asked: SessionRecord) -> list[Experiment]:
    """The experiments that a session is to run; raises ConfigError."""
    return [own_job.experiment(asked.job)] if asked.job else chosen(asked.names)


def request(
    names: Sequence[str],
    size: Size,
    pairs: int,
    seed: int,
    restrictions: Sequence[str],
    clock: Clock,
    job: Mapping[str, Setting] | None = None,
) -> SessionRecord:
    """What the user asks for, on this machine, now; raises ConfigError."""
    started, job = timestamp(clock), dict(job or {})
    asked = [own_job.experiment(job)] if job else chosen(names)
    sources = {each.name: digest(each) for each in asked if cells(each, size, restrictions)}
    return SessionRecord(
        session=f"{datetime.fromisoformat(started):%Y%m%dT%H%M%SZ}-{size}",
        started=started,
        size=size.value,
        pairs=pairs,
        seed=seed,
        names=list(names),
        only=list(restrictions),
        limit_s=QUICK_S * pairs if size is Size.QUICK and not job else None,
        job=job,
        machine=environment.machine() | {"load": environment.load()},
        versions=environment.versions(),
        revision=environment.revision(),
        source=blake2b("".join(sources.values()).encode(), digest_size=8).hexdigest(),
        sources=sources,
    )


def resumed(path: Path, clock: Clock) -> tuple[SessionRecord, list[Record]]:
    """What was asked for, on this machine now, and the records so far; raises ConfigError."""
    first, records = opened(path)
    size = Size(first.size)
    now = request(first.names, size, first.pairs, first.seed, first.only, clock, first.job)
    now = msgspec.structs.replace(now, session=first.session)
    for what, then, here in (
        *(
            (f"code of {name}", first.sources.get(name), now.sources.get(name))
            for name in now.sources
        ),
        ("processor", _processor(first), _processor(now)),
    ):
        if then != here:
            raise ConfigError(
                f"--resume {first.session}",
                expected=f"the {what} that the session began with, {then or 'not recorded'}",
                found=str(here),
                action="begin a new session; figures of two cannot be mixed",
            )
    return now, records


def due(asked: SessionRecord, sessions: Iterable[Path]) -> SessionRecord:
    """A session to be, with those experiments alone that no recorded one of its size has measured
    with today's code: every cell, with as many pairs.
    """
    todo, measured = dict[str, list[Step]](), set[str]()
    for step in planned(chosen(asked.names), asked)[0]:
        todo.setdefault(step.experiment.name, []).append(step)
    for path in sessions:
        first, records = opened(path)
        if first.size == asked.size:
            same = {name for name in todo if first.sources.get(name) == asked.sources[name]}
            measured |= {name for name in same if not left(todo[name], trials(records, name))}
    names = [name for name in todo if name not in measured]
    sources = {name: asked.sources[name] for name in names}
    return msgspec.structs.replace(asked, names=names, sources=sources)


def _processor(session: SessionRecord) -> tuple[Any, Any]:
    return session.machine.get("cpu"), session.machine.get("cores")


_OVERHEAD_S: Final = 0.5
"""Start and end of a process, which no cell's guess contains."""


@dataclass(frozen=True, slots=True)
class Step:
    experiment: Experiment
    cell: Cell
    """The cell with those of its variants that can run here."""
    variant: str
    pair: int
    position: int

    @property
    def expected_s(self) -> float:
        """A guess, with the start and the end of a process."""
        return _OVERHEAD_S + self.cell.expected_s + (0.0 if self.pair else self.cell.first_s)

    @property
    def pair_key(self) -> PairKey:
        return self.experiment.name, self.cell.key, self.pair

    @property
    def key(self) -> tuple[str, str, str]:
        """Equal for what takes equally long."""
        return self.experiment.name, self.cell.key, self.variant

    @property
    def of_pair(self) -> dict[str, Any]:
        settings = dict(self.cell.settings)
        return {"experiment": self.experiment.name, "settings": settings, "pair": self.pair}


def planned(
    experiments: Sequence[Experiment], asked: SessionRecord
) -> tuple[list[Step], list[SkipRecord]]:
    """All trials of a session, and what cannot run here; raises ConfigError for no trial."""
    size, found, skipped = Size(asked.size), list[Step](), list[SkipRecord]()
    for experiment in experiments:
        todo, absent = plan(experiment, size, asked.pairs, asked.only)
        found += todo
        skipped += absent
    if not found and not skipped:
        raise ConfigError(
            f"--only {' '.join(asked.only)}",
            expected=f"a setting of a cell of {', '.join(asked.names)} ({size})",
            found="no cell that has it",
            action=f"see the settings with `tidelog bench list --json{_option(size)}`",
        )
    return found, skipped


def _option(size: Size) -> str:
    """What a command is told for a size; nothing for the usual one."""
    return "" if size is Size.STANDARD else f" --{size}"


def plan(
    experiment: Experiment, size: Size, pairs: int, only: Iterable[str] = ()
) -> tuple[list[Step], list[SkipRecord]]:
    """All trials of an experiment, and what of it cannot run here."""
    of = cells(experiment, size, only)
    variants = dict.fromkeys(variant for cell in of for variant in cell.variants)
    reasons = ((variant, experiment.missing(variant)) for variant in variants)
    absent = [
        SkipRecord(experiment=experiment.name, variant=variant, reason=reason)
        for variant, reason in reasons
        if reason
    ]
    return list(steps(experiment, of, absent, pairs)), absent


def cells(experiment: Experiment, size: Size, restrictions: Iterable[str]) -> list[Cell]:
    """The cells that KEY=VALUE choose; a key that is given several times takes any of its values.

    Raises ConfigError for one without `=`.
    """
    wanted: dict[str, set[str]] = {}
    for restriction in restrictions:
        key, equals, value = restriction.partition("=")
        if not equals:
            raise ConfigError(
                f"--only {restriction}",
                expected="KEY=VALUE, a setting of a cell",
                found=restriction,
                action="see the settings with `tidelog bench list --json`",
            )
        wanted.setdefault(key, set()).add(value)
    return [
        cell
        for cell in experiment.cells(size)
        if all(k in cell.settings and str(cell.settings[k]) in of for k, of in wanted.items())
    ]


def steps(
    experiment: Experiment, of: Iterable[Cell], absent: Iterable[SkipRecord], pairs: int
) -> Iterator[Step]:
    without = {skip.variant for skip in absent}
    for cell in of:
        variants = tuple(variant for variant in cell.variants if variant not in without)
        runnable = replace(cell, variants=variants)
        for pair in range(pairs_needed(cell.settings, pairs)):
            order = variants if pair % 2 == 0 else variants[::-1]
            for position, variant in enumerate(order):
                yield Step(experiment, runnable, variant, pair, position)


def left(planned: Sequence[Step], recorded: Iterable[TrialRecord]) -> list[Step]:
    """What is still to be done; a pair that lacks a variant is done again from its start."""
    done: dict[PairKey, set[str]] = {}
    for trial in recorded:
        done.setdefault((trial.experiment, trial.cell, trial.pair), set()).add(trial.variant)
    return [
        step
        for step in planned
        if not done.get(step.pair_key, set()).issuperset(step.cell.variants)
    ]


@dataclass
class TimeLeft:
    """How many seconds trials still take: what was expected, times how much longer than that the
    last one of the same cell and variant took; else others of the experiment, or those of all.
    """

    _seen: dict[tuple[str, str, str], float] = field(default_factory=dict)
    _factors: dict[str, list[float]] = field(default_factory=dict)

    def learn(self, step: Step, taken_s: float) -> None:
        factor = taken_s / step.expected_s
        self._seen[step.key] = factor
        self._factors.setdefault(step.experiment.name, []).append(factor)

    def of(self, step: Step) -> float:
        if (seen := self._seen.get(step.key)) is not None:
            return seen * step.expected_s
        of_all = [factor for factors in self._factors.values() for factor in factors]
        factors = self._factors.get(step.experiment.name, of_all) or [1.0]
        return step.expected_s * statistics.median(factors)

    def total(self, steps: Iterable[Step]) -> float:
        return sum(map(self.of, steps))


def may_end(steps: Sequence[Step], remaining: TimeLeft, now: float, ends: float) -> float:
    """When the experiment of the first of these steps has to end, so that all have by `ends`.

    It has its share of the time that is left: what earlier ones did not need is shared by all.
    """
    mine = [step for step in steps if step.experiment is steps[0].experiment]
    return now + max(0.0, ends - now) * remaining.total(mine) / remaining.total(steps)
