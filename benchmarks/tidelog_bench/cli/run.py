"""`tidelog bench list` and `run`: the experiments, and sessions of their trials."""

import functools
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import click
import msgspec

from tidelog.cli.exit_codes import EXIT_OK, EXIT_PROBLEM
from tidelog.cli.output import Output, Rows
from tidelog.cli.store.options import on_this_machine
from tidelog.cli.values import span
from tidelog.effects import SystemClock
from tidelog.options.units import plural
from tidelog_bench.cli.results import results_option
from tidelog_bench.experiment import Experiment, Setting, Size
from tidelog_bench.experiments import experiments, own_job
from tidelog_bench.report.answer import report
from tidelog_bench.report.numbers import ENOUGH, few
from tidelog_bench.report.shown import page
from tidelog_bench.session import environment
from tidelog_bench.session.plan import (
    QUICK_S,
    Step,
    TimeLeft,
    due,
    left,
    of_session,
    plan,
    planned,
    request,
    resumed,
)
from tidelog_bench.session.records import Record, find, free, paths, trials
from tidelog_bench.session.session import Progress, Session

PAIRS: Final = {Size.QUICK: 1, Size.STANDARD: 5, Size.FULL: 5}
_BUSY_SHARE: Final = 0.5
"""A session that begins with a load above this share of the cores is noisy."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_CLOCK: Final = SystemClock()


def sized(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --quick and --full; the function gets `size`."""

    @click.option(
        "--quick",
        is_flag=True,
        help="Everything in five minutes: small, one pair; what does not fit is cut.",
    )
    @click.option("--full", is_flag=True, help="Every combination; twenty hours.")
    @functools.wraps(function)
    def command(*args: Any, quick: bool, full: bool, **options: Any) -> Any:
        if quick and full:
            raise click.UsageError("--quick and --full exclude each other")
        size = Size.QUICK if quick else Size.FULL if full else Size.STANDARD
        return function(*args, size=size, **options)

    return command


@click.command("list")
@sized
@on_this_machine
def list_experiments(output: Output, size: Size) -> int:
    """List the experiments: name, group, what each compares, and the time all its trials take in a
    standard session, in a quick one, and with --full in that.

    Times are guesses for two cores that do nothing else.
    """
    rows = [_row(experiment, size) for experiment in experiments().values()]
    sizes = [Size.STANDARD, Size.QUICK, *([Size.FULL] if size is Size.FULL else [])]
    table = Rows(
        rows,
        ("experiment", lambda row: row["name"]),
        "group",
        ("compares", lambda row: ", ".join(row["variants"])),
        ("cells", lambda row: len(row["cells"])),
        "trials",
        *((each.value, f"{each}_s", span) for each in sizes),
        ("what", lambda row: row["title"]),
    )
    totals = [f"{each} {span(sum(row[f'{each}_s'] for row in rows))}" for each in sizes]
    reasons = {m["variant"]: m["reason"] for row in rows for m in row["missing"]}
    output.show(
        rows,
        table,
        f"All together: {', '.join(totals)}; a quick session ends after {span(QUICK_S)} at most",
        *(f"{variant} will be skipped: {reason}" for variant, reason in reasons.items()),
    )
    return EXIT_OK


def _row(experiment: Experiment, size: Size) -> dict[str, Any]:
    of = experiment.cells(size)
    plans = {each: plan(experiment, each, PAIRS[each]) for each in Size}
    expected = {each: round(TimeLeft().total(todo)) for each, (todo, _) in plans.items()}
    todo, skipped = plans[size]
    return {
        "name": experiment.name,
        "group": experiment.group,
        "title": experiment.title,
        "question": experiment.question,
        "variants": list(dict.fromkeys(variant for cell in of for variant in cell.variants)),
        "cells": [dict(cell.settings) for cell in of],
        "trials": len(todo),
        "expected_s": expected[size],
        **{f"{each}_s": seconds for each, seconds in expected.items()},
        "missing": [{"variant": skip.variant, "reason": skip.reason} for skip in skipped],
    }


@click.command("run")
@click.argument("names", nargs=-1)
@sized
@click.option(
    "--pairs",
    type=click.IntRange(1),
    help="Repetitions; 5, with --quick 1. Fewer than 5 tell nothing from noise.",
)
@click.option("--seed", type=int, help="Of input and latencies; 1.")
@click.option(
    "--only",
    "restrictions",
    multiple=True,
    metavar="KEY=VALUE",
    help="Only cells with this setting; several values of one key add up.",
)
@click.option(
    "--stale", is_flag=True, help="Only experiments without figures of this size and today's code."
)
@click.option("--resume", metavar="SESSION", help="Go on with an interrupted session.")
@click.option(
    "--job",
    metavar="JOB",
    help="Measure a job of your own and no experiments: module:attribute or file.py:attribute.",
)
@click.option(
    "--set",
    "chosen_settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="With --job: latency_ms, mb_per_s, warm_s, seconds, input, output, include, follow, or an "
    "option of the job such as checkpoint.interval; may be repeated.",
)
@results_option
@on_this_machine
def run(
    output: Output,
    names: tuple[str, ...],
    size: Size,
    pairs: int | None,
    seed: int | None,
    restrictions: tuple[str, ...],
    stale: bool,
    resume: str | None,
    job: str | None,
    chosen_settings: tuple[str, ...],
    results: Path,
) -> int:
    """Run experiments: NAMES of experiments or groups, or `all`; see `tidelog bench list`.

    The variants of a pair alternate, each in a fresh process. Every trial is a JSON line in
    the session's file as soon as it ends. Stop with Ctrl-C and go on with --resume: what is
    recorded is not run again. Exits with 1 when a trial failed.

    With --stale it runs what no session of this size and with as many pairs has measured with
    today's code, and nothing else.

    With --job it measures a job of your own at the model of a store; `tidelog bench compare` says
    how two such sessions differ.

    With --quick every experiment has a share of five minutes (five for each pair): what does not
    fit is cut, and said; --resume runs that.
    """
    records: list[Record] = []
    if resume is None:
        own = _own_job(job, chosen_settings, others=bool(names or restrictions or stale))
        if own:
            names = (own_job.NAME,)
        elif not names:
            raise click.UsageError(
                "name experiments or groups of `tidelog bench list`, or all, or give --job"
            )
        start = 1 if seed is None else seed
        asked = request(names, size, pairs or PAIRS[size], start, restrictions, _CLOCK, own)
        if stale:
            asked = due(asked, paths(results))
            if not asked.names:
                click.echo("Nothing to run: all figures are of today's code.", err=True)
                return EXIT_OK
        asked = msgspec.structs.replace(asked, session=free(results, asked.session))
        path = results / f"{asked.session}.jsonl"
    else:
        given = names or restrictions or stale or (pairs, seed, job) != (None, None, None)
        if given or size is not Size.STANDARD:
            raise click.UsageError("--resume takes names and options from its session: give none")
        path = find(resume, results)
        asked, records = resumed(path, _CLOCK)
    todo, skipped = planned(of_session(asked), asked)
    todo = left(todo, trials(records))
    with output.progress("") as bar:
        session = Session(path, asked, _CLOCK, Progress(output, todo, bar), records)
        session.begin(skipped)
        _announce(session, todo)
        try:
            with _interruptions() as interrupted:
                session.run(todo, interrupted)
        except KeyboardInterrupt:
            _conclude(output, session)
            go_on = f"tidelog bench run --resume {asked.session}"
            click.echo(f"Interrupted. Go on with: {go_on}", err=True)
            raise
    _conclude(output, session)
    return EXIT_PROBLEM if session.failures else EXIT_OK


def _own_job(job: str | None, pairs: tuple[str, ...], *, others: bool) -> dict[str, Setting]:
    """The settings of the job that is to be measured; none without --job."""
    if job is None:
        if pairs:
            raise click.UsageError("--set is for --job")
        return {}
    if others:
        raise click.UsageError("--job measures one job: give no names, --only or --stale")
    settings = [pair.partition("=") for pair in pairs]
    if not all(name and equals for name, equals, _ in settings):
        raise click.UsageError("write --set KEY=VALUE")
    return own_job.settings_of(job, {name: value for name, _, value in settings})


def _announce(session: Session, todo: Sequence[Step]) -> None:
    asked = session.asked
    takes = f"about {span(session.remaining.total(todo))}"
    if asked.limit_s is not None:
        takes += f" and at most {span(asked.limit_s)}"
    click.echo(f"{plural(len(todo), 'trial')}, {takes}, recorded in {session.path}", err=True)
    if asked.pairs < ENOUGH:
        click.echo(f"{few(asked.pairs)}.", err=True)
    load, cores = environment.load(), int(asked.machine["cores"])
    if load > cores * _BUSY_SHARE:
        click.echo(
            f"The machine is busy (load {load} on {cores} cores): figures will be noisy.", err=True
        )


def _conclude(output: Output, session: Session) -> None:
    if output.as_json:
        return
    name = session.path.stem
    output.line(page(report([session.path])))
    if session.cuts:
        output.line(
            f"{plural(session.cuts, 'pair')} cut, as time was short: --resume {name} runs the rest."
        )
    if session.failures:
        output.line(f"{plural(session.failures, 'trial')} failed; --resume {name} tries again.")
    output.line(f"Report: tidelog bench report {name}")


@contextmanager
def _interruptions() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C or SIGTERM came: raised at once, they could leave a process that is just being
    started. The second one is raised.
    """
    seen: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if seen:
            raise KeyboardInterrupt
        seen.append(number)

    before = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield lambda: bool(seen)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
