"""A job as the options of `estimate` and `plan` describe it, and the prices to use.

Invariants: those of `tidelog.cli.store.options`; a store is opened only where one is to be like,
and nothing is written. An option is named as the field that it fills.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import click

from tidelog.catalog.inventory import read_slots
from tidelog.cli.estimate.prices import Prices, on_prices
from tidelog.cli.options import add_options, encryption_key_option, endpoint_option, option
from tidelog.cli.output import Output
from tidelog.cli.store.options import on_this_machine, opened
from tidelog.cli.values import bounds, count, duration, latency, to_bytes, window
from tidelog.cost.measured.analysis import measure
from tidelog.cost.measured.like import Likeness, like
from tidelog.cost.model.job import Settings, StoreLink, Workload
from tidelog.cost.model.timed import in_sessions, in_windows, joined
from tidelog.cost.sample import read_values, sampled
from tidelog.engines import LocalEngine, WorkerConfig
from tidelog.errors import ConfigError
from tidelog.options.units import show_duration
from tidelog.storage.open import StoreAccess

_COUNT: Final = click.IntRange(min=1)
_OPTIONS: Final = (
    click.option(
        "--writes-per-second",
        "writes_per_s",
        type=count,
        metavar="N",
        help="Updates of keyed state, over all subtasks, such as 20k; a list element or a timer "
        "counts as one. Needed without --like.",
    ),
    click.option("--keys", type=count, metavar="N", help="Live keys; or give --state-size."),
    click.option(
        "--state-size",
        "state_bytes",
        type=to_bytes,
        metavar="SIZE",
        help="Live state as the table stores it.  [default: keys x row]",
    ),
    click.option("--key-bytes", type=to_bytes, metavar="SIZE", help="Of a key.  [default: 16]"),
    click.option(
        "--value-bytes", type=to_bytes, metavar="SIZE", help="Of a value.  [default: 100]"
    ),
    click.option(
        "--skew",
        type=float,
        help="Zipf exponent of the keys: 0 is uniform, 1 is what words of a language have.  "
        "[default: 0]",
    ),
    click.option(
        "--compression",
        type=float,
        help="Size of the log as stored over its raw size.  [default: 1, an upper limit]",
    ),
    click.option(
        "--sample",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Values of your own, one in each line: their size, and what log and tables compress "
        "them to, are measured.",
    ),
    click.option(
        "--like",
        metavar="URL",
        help="The store of a job: rates, sizes and settings that no other option says are "
        "measured there.",
    ),
    endpoint_option,
    encryption_key_option,
    click.option(
        "--join",
        type=bounds,
        metavar="LOWER,UPPER",
        help="The writes are records of an interval join, half of each stream, such as -1m,5m; "
        "--keys is not needed.",
    ),
    click.option(
        "--window",
        type=window,
        metavar="SIZE[,SLIDE]",
        help="The writes are records in tumbling windows, or sliding ones, such as 10m,1m.",
    ),
    click.option(
        "--session",
        type=duration,
        metavar="GAP",
        help="The writes are records in session windows with this gap.",
    ),
    click.option(
        "--delay",
        type=latency,
        metavar="TIME",
        help="How far event time is behind the records; of --join, --session and --window.  "
        "[default: 0s]",
    ),
    click.option(
        "--parallelism",
        type=_COUNT,
        help="Subtasks with keyed state in all.  [default: one in each process]",
    ),
    option(
        "--processes", type=_COUNT, default=1, help="Jobs that share the work, each with a store."
    ),
    option(
        "--workers", type=_COUNT, default=1, help="Processes of each job, which have one store."
    ),
    click.option(
        "--checkpoint-interval",
        type=duration,
        help=f"[default: {show_duration(Settings().checkpoint_interval)}]",
    ),
    option("--retain", type=_COUNT, default=Settings().retain, help="Checkpoints to keep."),
    option("--restores-per-month", type=click.FloatRange(min=0), default=30.0),
    option(
        "--bandwidth",
        "bytes_per_s",
        type=to_bytes,
        default="100MB",
        metavar="SIZE",
        help="To the store, of one process, a second.",
    ),
    option("--latency", "latency_s", type=latency, default="30ms", help="Of one request."),
    on_prices,
    click.option(
        "--egress", is_flag=True, help="What restores read leaves the provider, and is billed."
    ),
)

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DescribedJob:
    """The job and the prices, as the options describe them."""

    workload: Workload
    settings: Settings
    prices: Prices
    checkpoint_interval_said: bool
    """An option says the interval of checkpoints."""

    def fields(self) -> dict[str, Any]:
        settings, link = self.settings, self.settings.link
        return {
            "workload": self.workload,
            "settings": {
                "parallelism": settings.parallelism,
                "processes": settings.processes,
                "workers": settings.workers,
                "checkpoint_interval_s": settings.checkpoint_interval,
                "retain": settings.retain,
                "restores_per_month": settings.restores_per_month,
                "bandwidth_bytes_per_s": link.bytes_per_s,
                "latency_s": link.latency_s,
                "egress": self.prices.egress,
            },
            **self.prices.fields(),
        }


def on_a_job(function: Callable[Concatenate[Output, DescribedJob, P], int]) -> Callable[..., None]:
    """Make a command function of `function`, which gets the described job; adds its options."""

    @add_options(*_OPTIONS)
    @on_this_machine
    @functools.wraps(function)
    async def command(output: Output, /, **options: Any) -> int:
        access = StoreAccess(options.pop("endpoint"), options.pop("encryption_key"))
        url: str | None = options.pop("like")
        likeness = None if url is None else await _like(url, access, output)
        try:
            job = _described(options, likeness)
            return function(output, job, **options)  # type: ignore[call-arg]
        except ArithmeticError as error:
            raise ConfigError(
                "the described job",
                expected="rates, sizes and times that a job can have",
                found=f"one so large or so small that the estimate has no number: {error}",
                action="correct the option that is far from what a job has",
            ) from error

    return command


async def _like(url: str, access: StoreAccess, output: Output) -> Likeness:
    async with opened(url, access, output) as command:
        config = WorkerConfig(url, access, None)
        engine = LocalEngine(command.store, command.effects, config)
        with output.progress("reading the log") as progress:
            report = await measure(command.store, engine, progress)
        return like(report, (await read_slots(command.store)).all_checkpoints()[-1])


def _described(options: dict[str, Any], likeness: Likeness | None) -> DescribedJob:
    """Takes its options out of all of a command; `likeness` says what they leave open."""
    books = options.pop("providers"), options.pop("price_files")
    prices = Prices.chosen(*books, egress=options.pop("egress"))
    kinds = {name: kind for name in _KINDS if (kind := options.pop(name)) is not None}
    delay_s, sample_file = options.pop("delay"), options.pop("sample")
    _check_kinds(list(kinds), delay_s)
    job_options = {name: value for name, value in options.items() if value is not None}
    if likeness is not None:
        job_options = _like_fields(likeness) | job_options
        if options["keys"] is not None:
            job_options.pop("state_bytes", None)
    settings = _settings(job_options)
    values = None if sample_file is None else read_values(sample_file)
    if values is not None:
        job_options.setdefault("value_bytes", round(fmean(map(len, values))))
    interval_said = options["checkpoint_interval"] is not None
    workload = _workload(job_options, keyless="join" in kinds)
    flush_s = min(settings.checkpoint_interval, settings.flush.max_age)
    timed: dict[str, float] = {"delay_s": delay_s or 0.0, "flush_s": flush_s}
    if "join" in kinds:
        workload = joined(workload, *kinds["join"], **timed)  # type: ignore[arg-type]
    if "session" in kinds:
        workload = in_sessions(workload, kinds["session"], **timed)
    if "window" in kinds:
        workload = in_windows(workload, *kinds["window"], **timed)
    if values is not None:
        rows = workload.distinct(flush_s) / settings.parallelism
        more = max(0, workload.value_bytes - round(fmean(map(len, values))))
        sample = sampled(values, workload.key_bytes, rows, more if kinds else 0)
        workload = replace(
            workload,
            compression=job_options.get("compression", sample.compression),
            state_bytes=job_options.get(
                "state_bytes", max(1, round(workload.table_bytes * sample.table_compression))
            ),
        )
    for kind in (Workload, Settings, StoreLink):
        for field in fields(kind):
            options.pop(field.name, None)
    return DescribedJob(workload, settings, prices, interval_said)


_KINDS: Final = ("join", "session", "window")


def _check_kinds(chosen: Sequence[str], delay_s: float | None) -> None:
    options = " and ".join(f"--{name}" for name in chosen)
    if len(chosen) > 1:
        raise ConfigError(
            options,
            expected="one of them: the writes are records of a join, or of one kind of windows",
            found=f"{len(chosen)}",
            action="estimate the operators one after the other, and add up",
        )
    if delay_s is not None and not chosen:
        raise ConfigError(
            "--delay",
            expected="--join, --session or --window, whose rows wait for event time",
            found="none of them",
            action="leave it out, or say which operator it is",
        )


def _like_fields(likeness: Likeness) -> dict[str, Any]:
    values = {field.name: getattr(likeness.workload, field.name) for field in fields(Workload)}
    return values | {
        "parallelism": likeness.parallelism,
        "sources": likeness.sources,
        "checkpoint_interval": likeness.checkpoint_interval,
    }


def _settings(options: dict[str, Any]) -> Settings:
    settings = options | {"link": _filled(StoreLink, options)}
    settings.setdefault("parallelism", options["processes"] * options["workers"])
    return _filled(Settings, settings)


def _workload(options: dict[str, Any], *, keyless: bool) -> Workload:
    if "writes_per_s" not in options:
        raise ConfigError(
            "option --writes-per-second",
            expected="how many updates of keyed state there are a second",
            found="none",
            action="say it, or name the store of a job that is alike with --like URL",
        )
    if "keys" not in options:
        options = options | {"keys": 1 if keyless else _keys(options)}
    return _filled(Workload, options | {"keys": int(options["keys"])})


def _filled(kind: type[T], options: dict[str, Any]) -> T:
    names = options.keys() & {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: options[name] for name in names})


def _keys(options: dict[str, Any]) -> int:
    if "state_bytes" not in options:
        raise ConfigError(
            "options --keys and --state-size",
            expected="at least one of them",
            found="neither",
            action="say how many keys are live, or how large the state is",
        )
    row_bytes: int = sum(
        options.get(name, getattr(Workload(1, 1), name)) for name in ("key_bytes", "value_bytes")
    )
    keys: int = options["state_bytes"] // max(row_bytes, 1)
    return max(1, keys)
