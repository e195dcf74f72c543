"""Measure the micro-benchmarks and compare them with the stored baseline of this kind of machine.

just bench-micro                # compare
just bench-micro-baseline       # renew the baseline
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from benchmarks.micro import baseline
from benchmarks.micro.baseline import Baseline, Change
from tidelog.errors import TidelogError
from tidelog_bench.session import environment

HERE = Path(__file__).parent
RUNS = 5
MARKS = {"slower": "red", "faster": "green", "new": "cyan"}


@click.command()
@click.option("--runs", type=click.IntRange(1), default=RUNS, show_default=True)
@click.option("-k", "chosen", metavar="EXPRESSION", help="Only these, as pytest's -k has them.")
@click.option("--renew", is_flag=True, help="Store the result as the baseline of such machines.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--strict", is_flag=True, help="End with 1 when something is slower beyond noise.")
def main(runs: int, chosen: str | None, renew: bool, as_json: bool, strict: bool) -> None:
    """Measure the micro-benchmarks, each run in a process of its own, and compare.

    Costs are in yardsticks: work that has nothing to do with tidelog, timed beside every benchmark.
    """
    if renew and chosen:
        raise click.UsageError("a baseline has all benchmarks: leave out -k")
    try:
        now = _measured(runs, chosen)
        before = baseline.load(now.kind)
        if renew:
            click.echo(f"stored {baseline.store(now)}")
            return
    except TidelogError as error:
        raise click.ClickException(str(error)) from error
    found = baseline.changes(before, now) if before is not None else []
    if as_json:
        document = {"now": now, "before": before, "changes": found}
        click.echo(msgspec.json.encode(document, order="sorted").decode())
    else:
        _show(before, now, found)
    if strict and any(change.verdict == "slower" for change in found):
        sys.exit(1)


def _measured(runs: int, chosen: str | None) -> Baseline:
    return baseline.combined(
        list(_documents(runs, chosen)),
        environment.machine(),
        environment.versions(),
        environment.revision(),
        datetime.now(UTC).isoformat(timespec="seconds"),
        environment.load(),
    )


def _documents(runs: int, chosen: str | None) -> Iterator[dict[str, Any]]:
    columns = BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    console = Console(stderr=True)
    with (
        tempfile.TemporaryDirectory(prefix="tidelog-micro-") as directory,
        Progress(TextColumn("runs"), *columns, console=console, transient=True) as progress,
    ):
        task = progress.add_task("runs", total=runs)
        for number in range(runs):
            yield _document(Path(directory) / f"{number}.json", chosen)
            progress.advance(task)


def _document(path: Path, chosen: str | None) -> dict[str, Any]:
    """One run of pytest in a process of its own."""
    command = [sys.executable, "-m", "pytest", str(HERE), "-q", "--benchmark-enable"]
    # Of the calling thread: neither waiting for a processor nor RocksDB's own threads count.
    command += ["--benchmark-timer=time.thread_time", "--benchmark-max-time=0.3"]
    command += [f"--benchmark-json={path}"]
    command += ["-k", chosen] if chosen else []
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HERE.parents[1])
    if done.returncode:
        raise click.ClickException(f"pytest failed:\n{done.stdout}{done.stderr}")
    document: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    return document


def _show(before: Baseline | None, now: Baseline, found: list[Change]) -> None:
    console = Console(highlight=False)
    if before is None:
        console.print(f"There is no baseline for {now.kind}: nothing is compared.")
        console.print("`just bench-micro-baseline` stores one, best from the revision to compare.")
        found = [Change(n, s, None, None, None, "") for n, s in now.seconds.items()]
    else:
        revision = (before.revision or "an unknown revision")[:12]
        console.print(f"against {revision} of {before.date[:10]}, {before.machine['cpu']}")
        console.print(f"load average then {before.load:.1f}, now {now.load:.1f}")
    table = Table(box=None, pad_edge=False)
    table.add_column("benchmark")
    for title in ("time", "ratio", "min-max", ""):
        table.add_column(title, justify="right")
    for change in found:
        mark = MARKS.get(change.verdict, "")
        table.add_row(
            change.name, _time(change.seconds), *_ratio(change), change.verdict, style=mark
        )
    console.print(table)


def _ratio(change: Change) -> tuple[str, str]:
    if change.ratio is None or change.low is None or change.high is None:
        return "", ""
    return f"{change.ratio:.2f}", f"{change.low:.2f}-{change.high:.2f}"


def _time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1 or unit == "us":
            return f"{seconds * factor:.3g} {unit}"
    raise AssertionError("microseconds hold every time")


if __name__ == "__main__":
    main()
