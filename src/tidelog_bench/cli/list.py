"""`tidelog bench list`: the experiments, what they compare, how long they take."""

from typing import Any

import click

from tidelog.cli.output import Output
from tidelog.cli.store.options import EXIT_OK, on_this_machine
from tidelog_bench.cli.options import pairs_of, sized
from tidelog_bench.cli.progress import duration
from tidelog_bench.experiment import Experiment
from tidelog_bench.experiments import experiments
from tidelog_bench.measurement import Size
from tidelog_bench.session.plan import TimeLeft, missing, steps


@click.command("list")
@sized
@on_this_machine
def command(output: Output, size: Size) -> int:
    """List the experiments: name, group, what each compares, and the time all its trials take.

    Several experiments may read one measurement; its trials run once for all of them. Times are
    guesses for two cores.
    """
    rows = [_row(experiment, size) for experiment in experiments().values()]
    if output.as_json:
        output.document(rows)
        return EXIT_OK
    output.table(
        ["experiment", "group", "compares", "cells", "trials", "takes", "what"],
        [
            [
                row["name"],
                row["group"],
                ", ".join(row["variants"]),
                len(row["cells"]),
                row["trials"],
                duration(row["expected_s"]),
                row["title"],
            ]
            for row in rows
        ],
    )
    reasons = {m["variant"]: m["reason"] for row in rows for m in row["missing"]}
    for variant, reason in reasons.items():
        output.line(f"{variant} will be skipped: {reason}")
    return EXIT_OK


def _row(experiment: Experiment, size: Size) -> dict[str, Any]:
    measurement = experiment.measurement
    of = measurement.cells(size)
    gaps = missing(measurement, of)
    planned = list(steps(measurement, of, gaps, pairs_of(size, None)))
    return {
        "name": experiment.name,
        "group": experiment.group,
        "title": experiment.title,
        "question": experiment.question,
        "measurement": measurement.name,
        "variants": list(dict.fromkeys(variant for cell in of for variant in cell.variants)),
        "cells": [dict(cell.settings) for cell in of],
        "trials": len(planned),
        "expected_s": round(TimeLeft().total(planned)),
        "missing": [{"variant": gap.variant, "reason": gap.reason} for gap in gaps],
    }
