"""The jobs whose checkpoints are measured: their cells by size, and what runs for a trial.

Invariant: a spec holds nothing that is not in the settings of its cell, but for variant and seed.
"""

from collections.abc import Sequence
from typing import Any, Final

from tidelog.bench.embedded.jobs import sliding_window, timed, word_count
from tidelog.bench.embedded.run import RunSpec
from tidelog.bench.embedded.running import BuildJob
from tidelog.bench.embedded.workload import Workload
from tidelog.bench.measurement import Cell, Setting, Size, Trial
from tidelog.bench.store.manners import Manners

_STORE: Final = {"latency_ms": 30.0, "mb_per_s": 50.0}
_TIMES: Final[dict[Size, dict[str, Setting]]] = {
    # The warm-up is longer than a materialization takes to come: the fill's log is then cut.
    Size.QUICK: {"checkpoint_s": 0.5, "materialize_s": 2.0, "warm_s": 2.5, "seconds": 5.0},
    Size.STANDARD: {"checkpoint_s": 1.0, "materialize_s": 10.0, "warm_s": 12.0, "seconds": 30.0},
    Size.FULL: {"checkpoint_s": 1.0, "materialize_s": 20.0, "warm_s": 26.0, "seconds": 120.0},
}
_WORDS: Final[dict[Size, dict[int, dict[str, Setting]]]] = {
    Size.QUICK: {
        16: {"keys": 200_000, "rate": 30_000.0},
        200: {"keys": 100_000, "rate": 15_000.0},
    },
    Size.STANDARD: {
        16: {"keys": 1_000_000, "rate": 50_000.0},
        200: {"keys": 1_000_000, "rate": 30_000.0},
    },
    Size.FULL: {
        16: {"keys": 5_000_000, "rate": 50_000.0},
        200: {"keys": 2_000_000, "rate": 40_000.0},
    },
}
_WINDOWS: Final[dict[Size, dict[str, Setting]]] = {
    # The state of a window job is full when the warm-up is longer than a window.
    Size.QUICK: {"keys": 2_000, "rate": 400.0, "window_s": 2.0},
    Size.STANDARD: {"keys": 20_000, "rate": 500.0, "window_s": 6.0},
    Size.FULL: {"keys": 20_000, "rate": 500.0, "window_s": 60.0, "warm_s": 65.0},
}
_AT_ONCE_S: Final = 0.01
"""As in the published experiments: the next checkpoint is always due."""
_STARTS_S: Final = 2.0


def cells(size: Size) -> Sequence[Cell]:
    """The word count with short and long words, the sliding window with many slides and fewer."""
    settings: list[dict[str, Setting]] = [
        {**_STORE, **_TIMES[size], "job": "wordcount", "key_bytes": key_bytes, **words}
        for key_bytes, words in _WORDS[size].items()
    ]
    settings += [
        {**_STORE, **_TIMES[size], "job": "window", "slides": slides, **_WINDOWS[size]}
        for slides in (10, 5)
    ]
    return [Cell(each, ("on", "off"), _expected_s(each)) for each in settings]


def non_stop_cells(size: Size) -> Sequence[Cell]:
    """The same loads in shorter runs, with an interval that no checkpoint can keep; quick: two."""
    found = []
    for cell in cells(size):
        of_two = cell.settings.get("key_bytes") == 200 or cell.settings.get("slides") == 10
        if size is Size.QUICK and not of_two:
            continue
        settings = {**cell.settings, "checkpoint_s": _AT_ONCE_S}
        if size is Size.STANDARD:
            settings["seconds"] = 15.0
        found.append(Cell(settings, cell.variants, _expected_s(settings)))
    return found


def _expected_s(settings: dict[str, Any]) -> float:
    fill = settings["keys"] / 100_000 if settings["job"] == "wordcount" else 0.0
    return _STARTS_S + float(fill + settings["warm_s"] + settings["seconds"])


def spec_of(trial: Trial) -> RunSpec:
    """The run of a variant."""
    settings: Any = trial.settings
    needed = (settings["warm_s"] + settings["seconds"]) * settings["rate"]
    key_bytes = settings.get("key_bytes", 16)
    return RunSpec(
        Workload(settings["keys"], key_bytes, draws=int(min(max(needed, 10_000), 4_000_000))),
        changelog=trial.variant == "on",
        checkpoint_s=settings["checkpoint_s"],
        materialize_s=settings["materialize_s"],
        warm_s=settings["warm_s"],
        seconds=settings["seconds"],
        rate=settings["rate"],
        link=Manners(settings["latency_ms"], settings["mb_per_s"], trial.seed),
        in_memory_store=True,
        filled=settings["job"] == "wordcount",
        seed=trial.seed,
    )


def job_of(trial: Trial) -> BuildJob:
    """Its job."""
    settings: Any = trial.settings
    if settings["job"] == "wordcount":
        return lambda stages: word_count(stages.read)
    slides, rate = settings["slides"], settings["rate"]
    slide_ms = int(settings["window_s"] * 1000) // slides
    return lambda stages: sliding_window(timed(stages.read, rate), slides=slides, slide_ms=slide_ms)
