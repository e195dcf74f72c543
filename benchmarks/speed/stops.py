"""Does a job ever stand still? Lateness of records at a steady rate, and durations of checkpoints.

just speed stops                        # all workloads, 70 seconds each
just speed stops --only keys --rate 80000 --seconds 150 --memory 4GiB
just speed stops --base HEAD~5          # the same jobs with the source of a revision
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import click

from benchmarks.speed.runs import ROOT, command_of, commit_of, failed, source_of
from benchmarks.speed.workloads import HERE
from tidelog.cli.output import Output, Rows
from tidelog.errors import ConfigError, TidelogError
from tidelog.runtime.status.distribution import percentile
from tidelog_bench.embedded import steady
from tidelog_bench.embedded.lateness import Handled, Lateness
from tidelog_bench.session import environment

RATES: Final = {
    "keys": 40_000.0,
    "words": 30_000.0,
    "hot": 60_000.0,
    "sliding": 5_000.0,
    "sessions": 15_000.0,
}
"""The jobs of `tidelog_bench.embedded.steady`, and records a second that two cores hold easily."""
WARM_UP_S: Final = 10
"""Records that are due earlier do not count, nor the first checkpoints: there is one a second."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Milliseconds, each of which has a limit."""

    late_p99: float
    late_p999: float
    late_max: float
    stop: float
    checkpoint_p99: float


_NAMES: Final = tuple(field.name for field in fields(Figures))


@dataclass(frozen=True, slots=True)
class Stops:
    """One workload; durations in milliseconds."""

    workload: str
    rate: float
    late_p50: float
    figures: Figures
    limits: Figures
    above: list[str]
    """The figures that are above their limits."""
    checkpoints: int
    checkpoint_p50: float
    checkpoint_max: float


@click.command()
@click.option("--only", type=click.Choice(list(RATES)), multiple=True, help="Only these.")
@click.option("--rate", type=click.FloatRange(1), help="Records a second of all workloads.")
@click.option(
    "--seconds",
    type=click.FloatRange(WARM_UP_S + 2),
    default=70.0,
    show_default=True,
    help=f"How long each runs; the first {WARM_UP_S} do not count.",
)
@click.option("--memory", default="1GiB", show_default=True, help="The option of the job.")
@click.option("--base", "revision", metavar="REVISION", help="Its source, not today's.")
@click.option(
    "--limit-factor",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    help="So many times what `stop-limits` allows, for a machine that others use as well.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def stops(
    only: tuple[str, ...],
    rate: float | None,
    seconds: float,
    memory: str,
    revision: str | None,
    limit_factor: float,
    as_json: bool,
) -> None:
    """Look how late records are at a steady rate, and how long checkpoints take.

    A record is late from when it was due until it was handled. Ends with 1 where a figure is above
    its limit.
    """
    try:
        limits = _limits(limit_factor)
        commit = None if revision is None else commit_of(revision)
        source = ROOT / "src" if commit is None else source_of(commit)
        rows = []
        for name in only or RATES:
            click.echo(f"{name}: {seconds:.0f} s", err=True)
            rows.append(_measure(name, source, rate or RATES[name], seconds, memory, limits[name]))
    except TidelogError as error:
        raise click.ClickException(str(error)) from error
    document = {
        "base": commit,
        "head": commit_of("HEAD"),
        "machine": environment.machine(),
        "load": environment.load(),
        "memory": memory,
        "seconds": seconds,
        "stops": rows,
    }
    table = Rows(
        rows,
        "workload",
        ("records/s", "rate", _whole),
        ("late p50", "late_p50", _whole),
        *((name.replace("_", " "), _figure(name)) for name in _NAMES),
        ("checkpoint p50", "checkpoint_p50", _whole),
        ("max", "checkpoint_max", _whole),
        ("", lambda row: f"ABOVE: {', '.join(row.above)}" if row.above else ""),
    )
    Output(as_json).show(document, f"milliseconds; memory {memory}", table)
    if any(row.above for row in rows):
        sys.exit(1)


def _measure(
    name: str, source: Path, rate: float, seconds: float, memory: str, limits: Figures
) -> Stops:
    """Run one workload to its end."""
    with tempfile.TemporaryDirectory(prefix="tidelog-stops-") as work:
        output = Path(work) / "handled"
        job = f"{steady.__name__}:{name}"
        command, variables = command_of(source, HERE.parent, job, Path(work) / "store")
        command += ["--memory", memory, "--checkpoint-interval", "1s"]
        command += ["--materialize-interval", "20s", "--report-interval", "200ms"]
        load = {"rate": rate, "seconds": seconds, "output": str(output)}
        done = subprocess.run(
            command,
            env=variables | {steady.VARIABLE: json.dumps(load)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise failed(job, source, done.returncode, done.stdout, done.stderr)
        handled = [Handled(*each) for each in json.loads(output.read_text())]
    late = Lateness.of(handled, rate, WARM_UP_S)
    durations = _checkpoints_ms(json.loads(line) for line in done.stdout.splitlines())
    if not durations:
        durations = [seconds * 1e3]  # or a job that completes none would be within its limit
    p50, p99, longest = (percentile(durations, share) for share in (0.5, 0.99, 1.0))
    figures = Figures(late.p99_ms, late.p999_ms, late.max_ms, late.stop_ms, p99)
    above = [each for each in _NAMES if getattr(figures, each) > getattr(limits, each)]
    return Stops(name, rate, late.p50_ms, figures, limits, above, len(durations), p50, longest)


def _checkpoints_ms(reports: Iterable[dict[str, Any]]) -> list[float]:
    """How long the checkpoints after the warm-up took."""
    said = [each["checkpoints"] for each in reports if each["event"] == "progress"]
    newest = {each["completed"]: each["last_duration_s"] for each in said}
    return [s * 1e3 for number, s in newest.items() if s is not None and number > WARM_UP_S]


def _limits(factor: float) -> dict[str, Figures]:
    """The limits of each workload, from the file `stop-limits`: its own, or those of all."""
    path = HERE / "stop-limits"
    lines = [line.split("#")[0].split() for line in path.read_text().splitlines()]
    given = {line[0]: [float(each) * factor for each in line[1:]] for line in lines if line}
    if "all" not in given or any(len(limits) != len(_NAMES) for limits in given.values()):
        raise ConfigError(
            str(path),
            expected=f"a line `all`, and in each line {', '.join(_NAMES)} in milliseconds",
            found=", ".join(f"{name} with {len(limits)}" for name, limits in given.items()),
            action="add or remove lines or numbers",
        )
    return {name: Figures(*given.get(name, given["all"])) for name in RATES}


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _figure(name: str) -> Callable[[Stops], str]:
    return lambda row: _whole(getattr(row.figures, name))
