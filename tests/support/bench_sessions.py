"""Sessions of benchmarks that never ran: experiments, and records with chosen figures."""

from collections.abc import Mapping, Sequence

from tidelog_bench.experiment import (
    Bars,
    Cell,
    Experiment,
    Figure,
    Ratio,
    Reading,
    Setting,
    Size,
    Trial,
)
from tidelog_bench.report.answer import LoadedSession
from tidelog_bench.session.records import Record, SessionRecord, TrialRecord

VARIANTS = ("on", "off")
QUANTILES = ("p50_ms", "p90_ms", "p99_ms")


def never(trial: Trial) -> Reading:
    raise AssertionError("no trial is run in these tests")


def cell(**settings: Setting) -> Cell:
    return Cell(settings, VARIANTS, 1.0)


def experiment(
    name: str = "durations",
    cells: Sequence[Cell] = (cell(job="word-count", key_bytes=16, latency_ms=30.0),),
    **changes: object,
) -> Experiment:
    """One with a figure of each direction and a plot of each shape."""
    values: dict[str, object] = {
        "name": name,
        "title": f"How long {name} take",
        "question": "Does the changelog make checkpoints faster & <steadier>?",
        "group": "embedded",
        "cells": lambda size: cells,
        "measure": never,
        "main": ("p99_ms",),
        "figures": (
            Figure("p99_ms", "duration p99", "ms"),
            Figure("records_per_s", "throughput", "records/s", better="higher"),
            Figure("objects", "objects", "", better="neither"),
            Figure("p50_ms", "duration p50", "ms"),
            Figure("p90_ms", "duration p90", "ms"),
        ),
        "ratios": (Ratio("on", "off"),),
        "plots": (
            Bars(("records_per_s",), "Throughput"),
            Bars(QUANTILES, "Durations"),
        ),
    } | changes
    return Experiment(**values)  # type: ignore[arg-type]


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
    variant: str,
    pair: int,
    figures: Mapping[str, float],
    of: Cell | None = None,
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
    number: int,
    on: Mapping[str, float],
    off: Mapping[str, float],
    of: Cell | None = None,
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
