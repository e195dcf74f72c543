"""`tidelog bench run`: a session of trials, recorded as they end; and going on with one."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

import click
import msgspec

from tidelog.cli.output import Output
from tidelog.cli.store.options import EXIT_OK, EXIT_PROBLEM, on_this_machine
from tidelog.effects import SystemClock
from tidelog_bench.cli.options import pairs_of, results_option, sized
from tidelog_bench.cli.progress import Progress, duration
from tidelog_bench.experiment import Experiment
from tidelog_bench.experiments import chosen
from tidelog_bench.measurement import Size
from tidelog_bench.report.terminal import summary
from tidelog_bench.report.verdict import ENOUGH, few
from tidelog_bench.session import environment, plan
from tidelog_bench.session.plan import Missing, Step
from tidelog_bench.session.records import Record, SessionRecord, find, free, trials
from tidelog_bench.session.request import planned, request, resumed
from tidelog_bench.session.session import Session

_BUSY_SHARE: Final = 0.5
"""A session that begins with a load above this share of the cores is noisy."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_CLOCK: Final = SystemClock()


@click.command("run")
@click.argument("names", nargs=-1)
@sized
@click.option(
    "--pairs",
    type=click.IntRange(1),
    help="Repetitions; 5, with --quick 1. Fewer than 5 tell nothing from noise.",
)
@click.option("--seed", type=int, help="Of input, latencies and failures; 1.")
@click.option(
    "--only",
    "restrictions",
    multiple=True,
    metavar="KEY=VALUE",
    help="Only cells with this setting; several values of one key add up.",
)
@click.option("--resume", metavar="SESSION", help="Go on with an interrupted session.")
@results_option
@on_this_machine
def command(
    output: Output,
    names: tuple[str, ...],
    size: Size,
    pairs: int | None,
    seed: int | None,
    restrictions: tuple[str, ...],
    resume: str | None,
    results: Path,
) -> int:
    """Run experiments: NAMES of experiments or groups, or `all`; see `tidelog bench list`.

    The variants of a pair alternate, each in a fresh process. Every trial is a JSON line in
    the session's file as soon as it ends. Stop with Ctrl-C and go on with --resume: what is
    recorded is not run again. Exits with 1 when a trial failed.

    With --quick every experiment has a share of ten minutes (ten for each pair): what does not
    fit is cut, and said; --resume runs that.
    """
    records: list[Record] = []
    if resume is None:
        if not names:
            raise click.UsageError("name experiments, groups or all; see `tidelog bench list`")
        repetitions = pairs_of(size, pairs)
        start = 1 if seed is None else seed
        asked = request(names, size, repetitions, start, restrictions, _CLOCK)
        asked = msgspec.structs.replace(asked, session=free(results, asked.session))
        path = results / f"{asked.session}.jsonl"
    else:
        if names or restrictions or size is not Size.STANDARD or (pairs, seed) != (None, None):
            raise click.UsageError("--resume takes everything from the session")
        path = find(resume, results)
        asked, records = resumed(path, _CLOCK)
    experiments = chosen(tuple(asked.names))
    steps, gaps = planned(experiments, asked)
    return _run(output, path, experiments, asked, records, steps, gaps)


def _run(
    output: Output,
    path: Path,
    experiments: Sequence[Experiment],
    asked: SessionRecord,
    records: list[Record],
    steps: Sequence[Step],
    gaps: Sequence[Missing],
) -> int:
    left = plan.left(steps, trials(records))
    with output.progress("") as shown:
        listener = Progress(output, experiments, left, shown)
        session = Session(
            path, experiments, asked.seed, _CLOCK, listener, records, limit_s=asked.limit_s
        )
        session.begin(asked, gaps)
        _announce(session, left, asked)
        try:
            with _interruptions() as session.interrupted:
                session.run(left)
        except KeyboardInterrupt:
            click.echo(
                f"Interrupted. Go on with: tidelog bench run --resume {asked.session}", err=True
            )
            raise
    if not output.as_json:
        _conclude(output, session, path)
    return EXIT_PROBLEM if session.failures else EXIT_OK


def _announce(session: Session, steps: Sequence[Step], asked: SessionRecord) -> None:
    takes = f"about {duration(session.remaining.total(steps))}"
    if asked.limit_s is not None:
        takes += f" and at most {duration(asked.limit_s)}"
    click.echo(f"{len(steps)} trials, {takes}, recorded in {session.path}", err=True)
    if asked.pairs < ENOUGH:
        click.echo(f"{few(asked.pairs)}.", err=True)
    load, cores = environment.load(), int(asked.machine["cores"])
    if load > cores * _BUSY_SHARE:
        click.echo(
            f"The machine is busy (load {load} on {cores} cores): figures will be noisy.", err=True
        )


def _conclude(output: Output, session: Session, path: Path) -> None:
    output.line()
    for line in summary(session.records, session.experiments):
        output.line(line)
    if session.cuts:
        output.line(
            f"{session.cuts} pairs were cut for want of time; --resume {path.stem} runs them."
        )
    if session.failures:
        output.line(f"{session.failures} trials failed; --resume {path.stem} tries them again.")
    output.line(f"Report: tidelog bench report {path.stem}")


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
