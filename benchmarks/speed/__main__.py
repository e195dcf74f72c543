"""Is today's code slower than an earlier revision? Processor time of whole jobs, in turn.

just speed                              # all workloads, three pairs: six minutes on two cores
just speed --only short --pairs 2
just speed --base HEAD~5                # against another revision than the one in `base`
just speed stops                        # whether a job ever stands still: stops.py
"""

import compileall
import statistics
import sys
import tempfile
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from benchmarks.speed.runs import ROOT, Run, cached, commit_of, prepare, run, source_of
from benchmarks.speed.stops import stops
from benchmarks.speed.workloads import HERE, WORKLOADS, limits
from tidelog.cli.output import Output, Rows
from tidelog.errors import TidelogError
from tidelog_bench.session import environment

PAIRS = 3


@dataclass(frozen=True, slots=True)
class Figures:
    """The least processor time of some runs, since noise only adds, and their median checkpoint."""

    cpu_s: float
    checkpoint_p50_s: float
    runs: list[Run]

    @classmethod
    def of(cls, runs: list[Run]) -> "Figures":
        """The figures of all runs of one revision."""
        middle = statistics.median(run.checkpoint_p50_s for run in runs)
        return cls(min(run.cpu_s for run in runs), middle, runs)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One workload; `ratio` is today's processor time over the base's."""

    workload: str
    base: Figures
    today: Figures
    ratio: float
    limit: float
    above: bool


@click.group(invoke_without_command=True)
@click.option("--only", type=click.Choice(list(WORKLOADS)), multiple=True, help="Only these.")
@click.option("--pairs", type=click.IntRange(1), default=PAIRS, show_default=True)
@click.option("--base", "revision", metavar="REVISION", help="Compare with it, not with `base`.")
@click.option("--limit", type=float, help="Largest ratio of each, not those in `limits`.")
@click.option(
    "--share",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    help="Share of the inputs: less shows that everything works, and nothing else.",
)
@click.option(
    "--results", type=click.Path(path_type=Path), help="Append the result to this file, as JSON."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def main(
    context: click.Context,
    only: tuple[str, ...],
    pairs: int,
    revision: str | None,
    limit: float | None,
    share: float,
    results: Path | None,
    as_json: bool,
) -> None:
    """Compare the processor time of whole jobs of today's source with that of an earlier revision.

    Both run with this Python, in turn, each from its own src/. Ends with 1 where a ratio is above
    its limit.
    """
    if context.invoked_subcommand is not None:
        return
    try:
        commit = commit_of(revision or (HERE / "base").read_text().strip())
        most = limits() if limit is None else dict.fromkeys(WORKLOADS, limit)
        sources = {"base": source_of(commit), "today": ROOT / "src"}
        if not sys.dont_write_bytecode:
            # Or the first run of a source alone would pay for it.
            for source in sources.values():
                compileall.compile_dir(source, quiet=2)
        found = [_compare(n, sources, pairs, share, most[n]) for n in only or WORKLOADS]
        head = commit_of("HEAD")
    except TidelogError as error:
        raise click.ClickException(str(error)) from error
    document = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "base": commit,
        "head": head,
        "machine": environment.machine(),
        "load": environment.load(),
        "share": share,
        "comparisons": found,
    }
    if results is not None:
        with results.open("ab") as file:
            file.write(msgspec.json.encode(document) + b"\n")
    table = Rows(
        found,
        "workload",
        ("base", lambda row: f"{row.base.cpu_s:.2f}"),
        ("today", lambda row: f"{row.today.cpu_s:.2f}"),
        ("ratio", lambda row: f"{row.ratio:.2f}"),
        ("limit", lambda row: f"{row.limit:.2f}"),
        ("", lambda row: "ABOVE" if row.above else ""),
        ("checkpoint p50, ms", lambda row: f"{_p50_ms(row.base)} -> {_p50_ms(row.today)}"),
    )
    said = f"processor seconds, least of {pairs}; base {commit[:7]}"
    Output(as_json).show(document, said, table)
    if any(comparison.above for comparison in found):
        sys.exit(1)


def _compare(
    name: str, sources: dict[str, Path], pairs: int, share: float, limit: float
) -> Comparison:
    """All pairs of one workload."""
    workload = WORKLOADS[name]
    jobs = {"base": workload.base_job or workload.job, "today": workload.job}
    workloads = {side: replace(workload, job=job) for side, job in jobs.items()}
    inputs = cached(f"{name}-{share}", lambda to: workload.draw(to, share))
    runs: dict[str, list[Run]] = {side: [] for side in sources}
    stores: dict[str, Path | None] = dict.fromkeys(sources)
    with tempfile.TemporaryDirectory(prefix="tidelog-speed-") as directory:
        if workload.restored_from is not None:
            for side, source in sources.items():
                click.echo(f"{name}: what {side} is to restore", err=True)
                stores[side] = store = Path(directory) / side / "store"
                prepare(source, workload, inputs, store)
        for pair in range(pairs):
            for side in list(sources) if pair % 2 == 0 else reversed(list(sources)):
                runs[side].append(run(sources[side], workloads[side], inputs, stores[side]))
                seconds = runs[side][-1].cpu_s
                click.echo(f"{name}: pair {pair + 1} of {pairs}, {side} {seconds:.2f} s", err=True)
    base, today = Figures.of(runs["base"]), Figures.of(runs["today"])
    ratio = today.cpu_s / base.cpu_s
    return Comparison(name, base, today, ratio, limit, ratio > limit)


def _p50_ms(figures: Figures) -> str:
    return f"{figures.checkpoint_p50_s * 1e3:.0f}"


main.add_command(stops)


if __name__ == "__main__":
    main()
