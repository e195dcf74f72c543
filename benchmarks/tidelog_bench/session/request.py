"""What a session is to do: as a user asks for it, and as an interrupted one goes on.

Invariant: a session goes on only where it began: the same source, the same processor.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from tidelog.effects import Clock
from tidelog.errors import ConfigError
from tidelog_bench.experiment import Experiment
from tidelog_bench.measurement import Size
from tidelog_bench.session import environment, plan
from tidelog_bench.session.plan import Chosen, Missing, Step
from tidelog_bench.session.records import Record, SessionRecord, opened, session_name
from tidelog_bench.session.session import timestamp

QUICK_S: Final = 570.0
"""What a quick session of one pair may take: ten minutes with what begins and ends it."""


def limit_s(size: Size, pairs: int) -> float | None:
    """What a session may take; None: as long as it needs."""
    return QUICK_S * pairs if size is Size.QUICK else None


def request(
    names: Sequence[str],
    size: Size,
    pairs: int,
    seed: int,
    restrictions: Sequence[str],
    clock: Clock,
) -> SessionRecord:
    """What the user asks for, on this machine, now."""
    now = clock.now_ms()
    return SessionRecord(
        session=session_name(datetime.fromtimestamp(now / 1e3, UTC), size),
        started=timestamp(clock),
        size=size.value,
        pairs=pairs,
        seed=seed,
        names=list(names),
        only=list(restrictions),
        limit_s=limit_s(size, pairs),
        machine=environment.machine() | {"load": environment.load()},
        versions=environment.versions(),
        revision=environment.revision(),
        source=environment.source_digest(),
    )


def resumed(path: Path, clock: Clock) -> tuple[SessionRecord, list[Record]]:
    """What was asked for, on this machine now, and the records so far; raises ConfigError."""
    first, records = opened(path)
    now = request(first.names, Size(first.size), first.pairs, first.seed, first.only, clock)
    now = msgspec.structs.replace(now, session=first.session)
    for what, then, here in (
        ("source of the library", first.source, now.source),
        ("processor", _processor(first), _processor(now)),
    ):
        if then != here:
            raise ConfigError(
                f"--resume {first.session}",
                expected=f"the {what} that the session began with, {then}",
                found=str(here),
                action="begin a new session; figures of two cannot be mixed",
            )
    return now, records


def _processor(session: SessionRecord) -> tuple[Any, Any]:
    return session.machine.get("cpu"), session.machine.get("cores")


def planned(
    experiments: Sequence[Experiment], asked: SessionRecord
) -> tuple[list[Step], list[Missing]]:
    """All trials of a session, and what cannot run here; raises ConfigError for no trial."""
    wanted, size = chosen_cells(asked.only), Size(asked.size)
    steps: list[Step] = []
    gaps: list[Missing] = []
    for measurement in plan.measurements(experiments):
        of = plan.cells(measurement, size, wanted)
        absent = plan.missing(measurement, of)
        gaps += absent
        steps += plan.steps(measurement, of, absent, asked.pairs)
    if not steps and not gaps:
        raise ConfigError(
            f"--only {' '.join(asked.only)}",
            expected=f"a setting of a cell of {', '.join(asked.names)} ({size})",
            found="no cell that has it",
            action=f"see the settings with `tidelog bench list --json --{size}`",
        )
    return steps, gaps


def chosen_cells(restrictions: Iterable[str]) -> Chosen:
    """Choose cells by KEY=VALUE; a key that is given several times takes any of its values.

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
    return lambda settings: all(
        key in settings and str(settings[key]) in values for key, values in wanted.items()
    )
