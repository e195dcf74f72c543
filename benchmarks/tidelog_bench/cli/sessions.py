"""`tidelog bench sessions`: what was run, when and where."""

from pathlib import Path
from typing import Any

import click

from tidelog.cli.output import Output
from tidelog.cli.store.options import EXIT_OK, on_this_machine
from tidelog_bench.cli.options import results_option
from tidelog_bench.session.records import FailureRecord, opened, paths, trials


@click.command("sessions")
@results_option
@on_this_machine
def command(output: Output, results: Path) -> int:
    """List the recorded sessions, oldest first."""
    rows = [_row(path) for path in paths(results)]
    if output.as_json:
        output.document(rows)
        return EXIT_OK
    output.table(
        ["session", "asked for", "pairs", "trials", "failed", "revision", "processor"],
        [
            [
                row["session"],
                " ".join(row["names"] + row["only"]),
                row["pairs"],
                row["trials"],
                row["failed"],
                (row["revision"] or "-")[:9],
                row["machine"].get("cpu"),
            ]
            for row in rows
        ],
    )
    return EXIT_OK


def _row(path: Path) -> dict[str, Any]:
    first, records = opened(path)
    done = trials(records)
    return {
        "session": first.session,
        "started": first.started,
        "size": first.size,
        "pairs": first.pairs,
        "names": first.names,
        "only": first.only,
        "revision": first.revision,
        "machine": first.machine,
        "trials": len(done),
        "failed": len([record for record in records if isinstance(record, FailureRecord)]),
    }
