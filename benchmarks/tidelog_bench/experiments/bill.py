"""The estimator against stores that were measured: what `tidelog estimate` says of four kinds of
state, and what the real runtime asks a store for and leaves there.

Invariants: the estimate knows what its user would: rates, keys, a sample of values and settings;
rates are low enough for any machine, so what is counted does not depend on its speed.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean
from typing import Any, Final

from tidelog.connectors.program import ForeachSink
from tidelog.cost.model.embedded import estimate_changelog
from tidelog.cost.model.job import Settings, StoreLink, Workload
from tidelog.cost.model.timed import in_windows
from tidelog.cost.model.usage import DAY_S
from tidelog.cost.sample import sampled
from tidelog.effects import Effects
from tidelog.materialize.schedule import MaterializeConfig
from tidelog.runtime.config import JobConfig
from tidelog.runtime.graph import Job
from tidelog.runtime.operators.window_kinds import Sliding, Tumbling
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.source import Source, SplitReader
from tidelog.settings import load_config
from tidelog.state.key_groups import encode_key
from tidelog.storage.memory import MemoryStore
from tidelog_bench.embedded.meter import CLOCK
from tidelog_bench.experiment import Cell, Experiment, Figure, Reading, Size, Trial
from tidelog_bench.store import LatencyProfile, ModelledStore, Traffic

_SHAPES: Final[dict[str, dict[str, float]]] = {
    "few hot keys": {"rate": 400, "keys": 50, "value_bytes": 100},
    "many small": {"rate": 500, "keys": 20_000, "value_bytes": 30},
    "4 KB values": {"rate": 40, "keys": 1_000, "value_bytes": 4_000},
    "tumbling windows": {"rate": 400, "keys": 500, "window_s": 10, "slide_s": 10},
    "sliding windows": {"rate": 200, "keys": 200, "window_s": 12, "slide_s": 3},
}
_TIMES: Final = {
    Size.QUICK: {"warm_s": 6.0, "seconds": 12.0},
    Size.STANDARD: {"warm_s": 40.0, "seconds": 150.0},
    Size.FULL: {"warm_s": 40.0, "seconds": 600.0},
}
_COMMON: Final = {"latency_ms": 30.0, "mb_per_s": 50.0, "materialize_s": 4.0, "counted": True}
_LOOK_S: Final = 1.0
_SAMPLE: Final = 2_000
_ENCODED: Final = 3
"""What a text takes besides its letters."""
_WORDS: Final = ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india")
VARIANT: Final = "estimate"


def cells(size: Size) -> Sequence[Cell]:
    times = _TIMES[size]
    return [
        Cell({**_COMMON, **times, "shape": shape, **of}, (VARIANT,), 2 + sum(times.values()))
        for shape, of in _SHAPES.items()
    ]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A job; rates a second, times in seconds."""

    rate: float
    keys: int
    seed: int
    latency_ms: float
    mb_per_s: float
    materialize_s: float
    warm_s: float
    seconds: float
    value_bytes: int = 0
    window_s: float = 0.0
    slide_s: float = 0.0

    @property
    def names(self) -> list[str]:
        return [f"{number:06d}" for number in range(self.keys)]

    def value(self, rng: Random) -> str:
        """Words and numbers, as texts of people are."""
        parts = list[str]()
        while sum(map(len, parts)) < self.value_bytes:
            parts.append(f"{rng.choice(_WORDS)} {rng.randrange(10_000)} ")
        return "".join(parts)[: self.value_bytes]

    def job(self) -> Job:
        rng, names, job = Random(self.seed), self.names, Job("bill")
        if self.window_s:
            size, slide = (round(each * 1_000) for each in (self.window_s, self.slide_s))
            windows = Tumbling(size) if size == slide else Sliding(size, slide)

            def timed(count: int) -> list[Any]:
                return [(rng.choice(names), CLOCK.now_ms()) for _ in range(count)]

            keyed = job.source(Paced(self.rate, timed)).event_time(lambda r: r[1])
            counts = keyed.key_by(lambda r: r[0]).window(windows).count()
            counts.sink(ForeachSink(lambda _: None))
            return job

        def drawn(count: int) -> list[Any]:
            return [(rng.choice(names), self.value(rng)) for _ in range(count)]

        first = [(name, self.value(rng)) for name in names]
        keyed = job.source(Paced(self.rate, drawn, first)).key_by(lambda r: r[0])
        newest = keyed.aggregate(lambda r: r[1], lambda _, value: value)
        newest.sink(ForeachSink(lambda _: None))
        return job

    def config(self) -> JobConfig:
        interval = f"{self.materialize_s:g}s"
        return load_config(options={"materialize.interval": interval})

    def estimate(self) -> "Counted":
        """What `tidelog estimate` says, with a sample of the values and how long the job ran."""
        materializations = (self.warm_s + self.seconds / 2) / self.materialize_s
        settings = Settings(
            link=StoreLink(bytes_per_s=self.mb_per_s * 1e6, latency_s=self.latency_ms / 1e3),
            materialize=MaterializeConfig(interval=self.materialize_s),
            descriptor_age=materializations,
            restores_per_month=0.0,
        )
        workload, values, more = self._workload()
        rows = workload.distinct(settings.checkpoint_interval)
        sample = sampled(values, workload.key_bytes, rows, more)
        stored = max(1, round(workload.table_bytes * sample.table_compression))
        workload = replace(workload, compression=sample.compression, state_bytes=stored)
        usage = estimate_changelog(workload, settings).usage
        return Counted(
            puts=usage.puts_per_s * DAY_S,
            lists=usage.reads.lists * DAY_S,
            uploaded=usage.uploaded_per_s * DAY_S,
            stored=usage.stored_bytes,
            objects=usage.stored_objects,
        )

    def _workload(self) -> tuple[Workload, list[bytes], int]:
        """The rows, a sample of their values, and bytes that they have in common."""
        rng, key_bytes = Random(self.seed + 1), len(encode_key(self.names[0]))
        if not self.window_s:
            values = [self.value(rng).encode() for _ in range(_SAMPLE)]
            return Workload(self.rate, self.keys, key_bytes, self.value_bytes + _ENCODED), values, 0
        values = [bytes([rng.randrange(1, 20)]) for _ in range(_SAMPLE)]
        workload = in_windows(
            Workload(self.rate, self.keys, key_bytes, 1),
            self.window_s,
            self.slide_s,
            delay_s=0.0,
            flush_s=1.0,
        )
        return workload, values, workload.value_bytes - 1


@dataclass(frozen=True, slots=True)
class Counted:
    """Requests and bytes a day; bytes and objects stored on average."""

    puts: float
    lists: float
    uploaded: float
    stored: float
    objects: float


@dataclass
class Paced(Source):
    """Records at a rate; `first` come before."""

    per_s: float
    make: Callable[[int], list[Any]]
    first: Sequence[Any] = ()

    def discover(self) -> Iterable[str]:
        return ["paced"]

    def open(self, split: str, position: Any) -> SplitReader:
        return _PacedReader(self)


class _PacedReader(SplitReader):
    delay_s = 0.01

    def __init__(self, source: Paced) -> None:
        self._source = source
        self._began = CLOCK.monotonic()
        self._first: Sequence[Any] = source.first
        self.position = 0

    def read(self) -> list[Any]:
        if self._first:
            first, self._first = self._first, ()
            return list(first)
        count = int((CLOCK.monotonic() - self._began) * self._source.per_s) - self.position
        self.position += count
        return self._source.make(count)


def measure(trial: Trial) -> Reading:
    shape = trial.read(Shape)
    effects = Effects()
    profile = LatencyProfile(latency_ms=shape.latency_ms, mb_per_s=shape.mb_per_s)
    with closing(effects.offload):
        store = ModelledStore(MemoryStore(), effects.clock, profile, own_loop=True)
        config = replace(shape.config(), work_dir=trial.directory)
        runner = JobRunner(shape.job(), store, config, effects)
        measured = asyncio.run(_measured(runner, store, shape))
    return Reading(dict(_figures(shape.estimate(), measured)))


async def _measured(runner: JobRunner, store: ModelledStore, shape: Shape) -> Counted:
    running = asyncio.ensure_future(runner.run())
    try:
        await CLOCK.sleep(shape.warm_s)
        before, objects = store.totals(), list[int]()
        for _ in range(round(shape.seconds / _LOOK_S)):
            await CLOCK.sleep(_LOOK_S)
            objects.append(len(store.stored))
        if running.done():
            running.result()
        return _counted(store.totals().since(before), fmean(objects))
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await store.close()


def _counted(traffic: Traffic, objects: float) -> Counted:
    a_day = DAY_S / traffic.seconds
    return Counted(
        puts=traffic.requests["put"] * a_day,
        lists=traffic.requests["list"] * a_day,
        uploaded=traffic.uploaded_bytes * a_day,
        stored=traffic.stored_bytes,
        objects=objects,
    )


def _figures(estimated: Counted, measured: Counted) -> Iterator[tuple[str, float]]:
    values: Mapping[str, float] = {name: getattr(measured, name) for name in Counted.__slots__}
    for name, value in values.items():
        yield f"{name}_ratio", round(getattr(estimated, name) / value, 3)
    yield "puts_per_day", round(measured.puts)
    yield "uploaded_mb_per_day", round(measured.uploaded / 1e6, 1)
    yield "stored_kb", round(measured.stored / 1e3, 1)


EXPERIMENT: Final = Experiment(
    name="bill",
    title="Estimates and stores",
    question="How near is what `tidelog estimate` says to what a store was asked for and holds?",
    group="embedded",
    cells=cells,
    measure=measure,
    figures=(
        Figure("puts_ratio", "PUT, estimated / measured", "", "neither"),
        Figure("lists_ratio", "LIST, estimated / measured", "", "neither"),
        Figure("uploaded_ratio", "uploaded, estimated / measured", "", "neither"),
        Figure("stored_ratio", "stored, estimated / measured", "", "neither"),
        Figure("objects_ratio", "objects, estimated / measured", "", "neither"),
        Figure("puts_per_day", "PUT", "a day", "neither"),
        Figure("uploaded_mb_per_day", "uploaded", "MB a day", "neither"),
        Figure("stored_kb", "stored on average", "kB", "neither"),
    ),
)
