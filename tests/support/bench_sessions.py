"""Sessions of benchmarks that never ran: records with chosen figures."""

from collections.abc import Mapping, Sequence

from tests.support.bench_toy import VARIANTS, experiment
from tidelog_bench.experiment import Cell, Size
from tidelog_bench.report.answer import LoadedSession
from tidelog_bench.session.records import Record, SessionRecord, TrialRecord


def session(pairs: int = 5, size: Size = Size.STANDARD, **changes: object) -> SessionRecord:
    values: dict[str, object] = {
        "session": "20261122T030000Z-standard",
        "started": "2026-11-22T03:00:00+00:00",
        "size": str(size),
        "pairs": pairs,
        "seed": 7,
        "names": ["durations"],
        "machine": {"cpu": "A Processor", "cores": 2, "memory_gb": 8.0, "system": "Linux 6"},
        "versions": {"python": "3.12.1", "tidelog": "0.1.0"},
        "revision": "0123456789abcdef0123456789abcdef01234567",
        "source": "feedc0de",
    } | changes
    return SessionRecord(**values)  # type: ignore[arg-type]


def trial(
    variant: str, pair: int, figures: Mapping[str, float], of: Cell | None = None
) -> TrialRecord:
    settings = (of or experiment().cells(Size.QUICK)[0]).settings
    first = VARIANTS.index(variant) if variant in VARIANTS else len(VARIANTS)
    return TrialRecord(
        experiment="durations",
        settings=dict(settings),
        variant=variant,
        pair=pair,
        position=first if pair % 2 == 0 else len(VARIANTS) - 1 - first,
        seed=7 + pair,
        started="2026-11-22T03:00:01+00:00",
        wall_s=1.5,
        load=0.25 + pair,
        figures=dict(figures),
    )


def pair(
    number: int, on: Mapping[str, float], off: Mapping[str, float], of: Cell | None = None
) -> list[TrialRecord]:
    both = [trial("on", number, on, of), trial("off", number, off, of)]
    return both if number % 2 == 0 else both[::-1]


def five(
    on: Sequence[float], off: Sequence[float], figure: str = "p99_ms", of: Cell | None = None
) -> list[TrialRecord]:
    """Five pairs of one figure."""
    return [
        record
        for number in range(5)
        for record in pair(number, {figure: on[number]}, {figure: off[number]}, of)
    ]


def loaded(
    records: Sequence[Record], planned: Sequence[Cell] = (), **changes: object
) -> LoadedSession:
    """A session of the experiment `durations`, as a report reads it."""
    first = session(**changes)  # type: ignore[arg-type]
    return LoadedSession(first, [first, *records], {"durations": planned})
