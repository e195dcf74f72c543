"""An experiment that takes no time: what a trial reads follows from its cell, variant and seed.

While the file exists that TIDELOG_TOY_BROKEN names, trials of the variant in it fail; or all wait
until they are killed, if it says `wait`.
"""

import os
import time
from pathlib import Path
from typing import Any

from tidelog_bench.experiment import Cell, Experiment, Figure, Ratio, Reading, Size, Trial

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


def toy(name: str, **more: Any) -> Experiment:
    """An experiment of this cell's values."""
    return Experiment(
        **{
            "name": name,
            "title": f"Values of {name}",
            "question": "What is the value?",
            "group": "embedded",
            "cells": cells,
            "measure": measure,
            "figures": (Figure("value_ms", "value", "ms"),),
            "main": ("value_ms",),
            "ratios": (Ratio("on", "off"),),
            "missing": missing,
            **more,
        }
    )


ABSENT = Cell({"size": 1}, ("on", "absent"), 0.1)
EXPERIMENTS = (
    toy("toy-value"),
    toy("toy-absent", cells=lambda size: [ABSENT]),
)
