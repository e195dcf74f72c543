"""Measure the micro-benchmarks and compare them with the stored baseline of this kind of machine.

just bench-micro                # compare
just bench-micro-baseline       # renew the baseline
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from benchmarks.micro import baseline
from benchmarks.micro.baseline import Baseline, Change
from tidelog.cli.output import Output, Rows
from tidelog.errors import TidelogError

HERE = Path(__file__).parent
RUNS = 5


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
        with tempfile.TemporaryDirectory(prefix="tidelog-micro-") as directory:
            documents = _documents(Path(directory), runs, chosen)
            now = baseline.combined(documents)
        before = baseline.load(now.kind)
        if renew:
            click.echo(f"stored {baseline.store(now)}")
            return
    except TidelogError as error:
        raise click.ClickException(str(error)) from error
    found = baseline.changes(before, now) if before is not None else []
    document = {"now": now, "before": before, "changes": found}
    Output(as_json).show(document, *_shown(before, now, found))
    if strict and any(change.verdict == "slower" for change in found):
        sys.exit(1)


def _documents(directory: Path, runs: int, chosen: str | None) -> Iterator[dict[str, Any]]:
    """What pytest-benchmark writes, of each run in a process of its own."""
    command = [sys.executable, "-m", "pytest", str(HERE), "-q", "--benchmark-enable"]
    # Of the calling thread: neither waiting for a processor nor RocksDB's own threads count.
    command += ["--benchmark-timer=time.thread_time", "--benchmark-max-time=0.3"]
    command += ["-k", chosen] if chosen else []
    with Output(as_json=False).progress("runs") as step:
        for number in range(runs):
            step(number, runs)
            path = directory / f"{number}.json"
            done = subprocess.run(
                [*command, f"--benchmark-json={path}"],
                capture_output=True,
                text=True,
                check=False,
                cwd=HERE.parents[1],
            )
            if done.returncode:
                raise click.ClickException(f"pytest failed:\n{done.stdout}{done.stderr}")
            yield msgspec.json.decode(path.read_bytes())


def _shown(before: Baseline | None, now: Baseline, found: list[Change]) -> Iterator[str | Rows]:
    if before is None:
        yield f"There is no baseline for {now.kind}: nothing is compared."
        yield "`just bench-micro-baseline` stores one, best from the revision to compare."
        found = [Change(n, s, None, None, None, "") for n, s in now.seconds.items()]
    else:
        revision = (before.revision or "an unknown revision")[:12]
        yield f"against {revision} of {before.date[:10]}, {before.machine['cpu']}"
        yield f"load average then {before.load:.1f}, now {now.load:.1f}"
    yield Rows(
        found,
        ("benchmark", lambda change: change.name),
        ("us", lambda change: f"{change.seconds * 1e6:.3g}"),
        ("ratio", lambda change: "" if change.ratio is None else f"{change.ratio:.2f}"),
        ("min-max", lambda of: "" if of.low is None else f"{of.low:.2f}-{of.high:.2f}"),
        ("", lambda change: change.verdict),
    )


if __name__ == "__main__":
    main()
