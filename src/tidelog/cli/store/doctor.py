"""`tidelog doctor`: is a store safe for jobs?"""

import click

from tidelog.cli.output import Output, fields_of
from tidelog.cli.store.options import EXIT_OK, EXIT_PROBLEM, StoreCommand, on_store
from tidelog.storage.probe import ProbeReport, probe_store


@click.command("doctor")
@on_store
async def command(invocation: StoreCommand) -> int:
    """Test whether the store at URL keeps what jobs rely on.

    Writes, races for, lists and deletes objects under probe/. Exits with 1 when the store is not
    safe.
    """
    other = invocation.open_again()
    try:
        report = await probe_store([invocation.store, other], invocation.effects)
    finally:
        await other.close()
    if invocation.output.as_json:
        invocation.output.document({**fields_of(report), "passed": report.passed})
    else:
        _print(invocation.output, report)
    return EXIT_OK if report.passed else EXIT_PROBLEM


def _print(output: Output, report: ProbeReport) -> None:
    output.table(
        ["check", "result", "found"],
        [[c.name, "ok" if c.passed else "FAILED", c.message] for c in report.checks],
    )
    output.line()
    output.table(
        ["operation", "calls", "min ms", "median ms", "max ms"],
        [
            [x.operation, x.calls, f"{x.min_ms:.1f}", f"{x.median_ms:.1f}", f"{x.max_ms:.1f}"]
            for x in report.latencies
        ],
    )
    output.line()
    if report.passed:
        output.line(f"{report.url} is safe for jobs")
    else:
        output.line(
            f"{report.url} is NOT safe for jobs: mend what failed, or use S3, a local directory "
            "or another store that passes"
        )
