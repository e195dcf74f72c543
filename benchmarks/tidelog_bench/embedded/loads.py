"""The jobs whose checkpoints are measured: their cells by size, the run of a trial, its reading.

Invariant: a spec holds nothing that is not in the settings of its cell, but for variant and seed.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from tidelog_bench.embedded.jobs import sliding_window, timed, word_count
from tidelog_bench.embedded.run import RunSpec, measure, spec_of
from tidelog_bench.embedded.running import BuildJob, Running, Watch
from tidelog_bench.measurement import Cell, Reading, Setting, Size, Trial

ON, OFF, OFF_RARE = "on", "off", "off-rare"
_STORE: Final = {"latency_ms": 30.0, "mb_per_s": 50.0}
_TIMES: Final[dict[Size, dict[str, Setting]]] = {
    # The warm-up is longer than a materialization takes to come: the fill's log is then cut.
    Size.QUICK: {"checkpoint_s": 0.4, "materialize_s": 1.5, "warm_s": 1.8, "seconds": 4.0},
    # Two materializations are in the measured time, so the log is seen to be cut.
    Size.STANDARD: {"checkpoint_s": 1.0, "materialize_s": 10.0, "warm_s": 12.0, "seconds": 25.0},
    Size.FULL: {"checkpoint_s": 1.0, "materialize_s": 20.0, "warm_s": 26.0, "seconds": 120.0},
}
_WORDS: Final[dict[Size, dict[int, dict[str, Setting]]]] = {
    Size.QUICK: {200: {"keys": 40_000, "rate": 10_000.0}},
    Size.STANDARD: {
        16: {"keys": 500_000, "rate": 50_000.0},
        200: {"keys": 1_000_000, "rate": 30_000.0},
    },
    Size.FULL: {
        16: {"keys": 5_000_000, "rate": 50_000.0},
        200: {"keys": 2_000_000, "rate": 40_000.0},
    },
}
_WINDOWS: Final[dict[Size, dict[str, Setting]]] = {
    # The state of a window job is full when the warm-up is longer than a window.
    Size.QUICK: {"keys": 2_000, "rate": 400.0, "window_s": 1.5},
    Size.STANDARD: {"keys": 20_000, "rate": 500.0, "window_s": 6.0},
    Size.FULL: {"keys": 20_000, "rate": 500.0, "window_s": 60.0, "warm_s": 65.0},
}
_OTHER_LATENCIES_MS: Final = {Size.QUICK: (), Size.STANDARD: (), Size.FULL: (0.0, 100.0)}
"""How much of a store's latency a checkpoint pays is seen with short words."""
_SLIDES: Final = {Size.QUICK: (10,), Size.STANDARD: (10,), Size.FULL: (10, 5)}
_NON_STOP: Final[dict[Size, dict[str, Setting]]] = {
    Size.QUICK: {"seconds": 3.0},
    # Rates need less time than sizes: two materializations are in it.
    Size.STANDARD: {"materialize_s": 5.0, "warm_s": 6.5, "seconds": 10.0},
    Size.FULL: {},
}
_AT_ONCE_S: Final = 0.01
"""As in the published experiments: the next checkpoint is always due."""
_STARTS_S: Final = 2.0


def cells(size: Size) -> Sequence[Cell]:
    """The word count with long words and, unless quick, short ones, which in full have stores of
    several latencies; the sliding window with many slides and, in full, fewer.
    """
    settings: list[dict[str, Setting]] = [
        {**_STORE, **_TIMES[size], "job": "wordcount", "key_bytes": key_bytes, **words}
        for key_bytes, words in _WORDS[size].items()
    ]
    settings += [{**settings[0], "latency_ms": ms} for ms in _OTHER_LATENCIES_MS[size]]
    settings += [
        {**_STORE, **_TIMES[size], "job": "window", "slides": slides, **_WINDOWS[size]}
        for slides in _SLIDES[size]
    ]
    return [Cell(each, ("on", "off"), _expected_s(each)) for each in settings]


def non_stop_cells(size: Size) -> Sequence[Cell]:
    """The same loads in shorter runs, with an interval that no checkpoint can keep; in quick and
    standard sessions long words and many slides alone, in quick ones the words.
    """
    found = []
    for cell in cells(size):
        if cell.settings["latency_ms"] != _STORE["latency_ms"]:
            continue
        few_bytes = cell.settings.get("key_bytes") == 16
        windows = cell.settings["job"] == "window"
        if (few_bytes and size is not Size.FULL) or (windows and size is Size.QUICK):
            continue
        settings = {**cell.settings, **_NON_STOP[size], "checkpoint_s": _AT_ONCE_S}
        found.append(Cell(settings, cell.variants, _expected_s(settings)))
    return found


def _expected_s(settings: dict[str, Any]) -> float:
    fill = settings["keys"] / 100_000 if settings["job"] == "wordcount" else 0.0
    return _STARTS_S + float(fill + settings["warm_s"] + settings["seconds"])


@dataclass(frozen=True, slots=True)
class Load:
    """What the settings of a cell say of its job: words that are counted, or windows of them."""

    job: Literal["wordcount", "window"]
    rate: float
    warm_s: float
    seconds: float
    slides: int = 1
    """Slides that a window covers ..."""
    window_s: float = 0.0
    """... and its size."""


def load_spec(trial: Trial, **more: Any) -> RunSpec:
    """The run of a variant; `more` are settings of it that the trial has not, or has otherwise."""
    load = trial.read(Load, **more)
    needed = (load.warm_s + load.seconds) * load.rate
    return spec_of(
        trial,
        draws=int(min(max(needed, 10_000), 4_000_000)),
        changelog=trial.variant == "on",
        in_memory_store=True,
        filled=load.job == "wordcount",
        **more,
    )


@dataclass(frozen=True, slots=True)
class Intervals:
    """Seconds between checkpoints, of most variants and of those with rare ones."""

    checkpoint_s: float
    rare_checkpoint_s: float


def interval_spec(trial: Trial, **more: Any) -> RunSpec:
    """The run of one of the variants ON, OFF and OFF_RARE: checkpoints of OFF_RARE are as rare as
    the materializations of ON.
    """
    times = trial.read(Intervals)
    rare = times.rare_checkpoint_s
    often = rare if trial.variant == OFF_RARE else times.checkpoint_s
    return load_spec(trial, checkpoint_s=often, materialize_s=rare, **more)


def job_of(load: Load) -> BuildJob:
    """The job of a load."""
    if load.job == "wordcount":
        return lambda stages: word_count(stages.read)
    slides, slide_ms = load.slides, int(load.window_s * 1000) // load.slides
    return lambda stages: sliding_window(
        timed(stages.read, load.rate), slides=slides, slide_ms=slide_ms
    )


def measure_load(
    trial: Trial,
    spec: RunSpec,
    read: Callable[[Running], Awaitable[Reading]],
    general: Iterable[str],
    watch: Watch | None = None,
) -> Reading:
    """Run the load of a trial, and `read` it when it has been stopped, while the store has all of
    it; with the figures of `measure` that are named by `general`.
    """
    readings: list[Reading] = []

    async def after(running: Running) -> None:
        readings.append(await read(running))

    found = measure(spec, job_of(trial.read(Load)), watch, after=after, room=trial.directory)
    [reading] = readings
    return replace(reading, figures={**reading.figures, **{name: found[name] for name in general}})
