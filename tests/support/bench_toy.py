"""Experiments that take no time: what a trial reads follows from its cell, variant and seed.

While the file exists that TIDELOG_TOY_BROKEN names, trials of the variant in it fail; or all wait
until they are killed, if it says `wait`.
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from tidelog_bench.experiment import Cell, Experiment, Figure, Ratio, Reading, Setting, Size, Trial

FLAG = "TIDELOG_TOY_BROKEN"


def cells(size: Size) -> list[Cell]:
    sizes = {Size.QUICK: (1,), Size.STANDARD: (1, 2), Size.FULL: (1, 2, 3)}[size]
    return [Cell({"size": at, "job": "toy"}, ("on", "off"), 0.1) for at in sizes]


def measure(trial: Trial) -> Reading:
    assert not any(trial.directory.iterdir())
    (trial.directory / "left behind").write_text("x")
    flag = os.environ.get(FLAG)
    if flag and Path(flag).exists():
        if Path(flag).read_text() == "wait":
            time.sleep(600)
        if trial.variant == Path(flag).read_text():
            print("last words of the trial", flush=True)
            raise ValueError("the toy is broken")
    at = trial.settings["size"]
    assert isinstance(at, int)
    value = float(at * (2 if trial.variant == "on" else 4) * trial.seed)
    earlier = len(list(trial.kept.iterdir()))
    (trial.kept / f"{earlier}").touch()
    return Reading({"value_ms": value}, {"earlier": earlier})


def missing(variant: str) -> str | None:
    return "not on a Sunday" if variant == "absent" else None


VARIANTS = ("on", "off")


def cell(**settings: Setting) -> Cell:
    return Cell(settings, VARIANTS, 1.0)


def experiment(
    name: str = "durations",
    of: Sequence[Cell] = (cell(job="word-count", key_bytes=16, latency_ms=30.0),),
    **changes: object,
) -> Experiment:
    """One with a figure of each direction."""
    values: dict[str, object] = {
        "name": name,
        "title": f"How long {name} take",
        "question": "Does the changelog make checkpoints faster & <steadier>?",
        "group": "embedded",
        "cells": lambda size: of,
        "measure": measure,
        "figures": (
            Figure("p99_ms", "duration p99", "ms"),
            Figure("records_per_s", "throughput", "records/s", better="higher"),
            Figure("objects", "objects", "", better="neither"),
            Figure("p50_ms", "duration p50", "ms"),
            Figure("p90_ms", "duration p90", "ms"),
        ),
        "ratios": (Ratio("on", "off"),),
    } | changes
    return Experiment(**values)  # type: ignore[arg-type]


TOY = {"figures": (Figure("value_ms", "value", "ms"),), "missing": missing}
ABSENT = Cell({"size": 1}, ("on", "absent"), 0.1)
EXPERIMENTS = (
    experiment("toy-value", cells=cells, **TOY),
    experiment("toy-absent", (ABSENT,), **TOY),
)
