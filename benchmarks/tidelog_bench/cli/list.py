"""`tidelog bench list`: the experiments, what they compare, how long they take."""

from typing import Any

import click

from tidelog.cli.output import Output
from tidelog.cli.store.options import EXIT_OK, on_this_machine
from tidelog_bench.cli.options import pairs_of, sized
from tidelog_bench.cli.progress import duration
from tidelog_bench.experiment import Experiment
from tidelog_bench.experiments import experiments
from tidelog_bench.measurement import Measurement, Size
from tidelog_bench.session.plan import Step, TimeLeft, missing, steps
from tidelog_bench.session.request import QUICK_S


@click.command("list")
@sized
@on_this_machine
def command(output: Output, size: Size) -> int:
    """List the experiments: name, group, what each compares, and the time all its trials take in a
    standard session, in a quick one, and with --full in that.

    Several experiments may read one measurement; its trials run once for all of them, and count
    for the first. Times are guesses for two cores that do nothing else.
    """
    rows = [_row(experiment, size) for experiment in experiments().values()]
    sizes = [Size.STANDARD, Size.QUICK, *([Size.FULL] if size is Size.FULL else [])]
    first = {row["measurement"]: row["name"] for row in reversed(rows)}
    if output.as_json:
        output.document(rows)
        return EXIT_OK
    output.table(
        ["experiment", "group", "compares", "cells", "trials", *sizes, "what"],
        [
            [
                row["name"],
                row["group"],
                ", ".join(row["variants"]),
                len(row["cells"]),
                row["trials"],
                *(
                    duration(row[f"{each}_s"])
                    if first[row["measurement"]] == row["name"]
                    else f"with {first[row['measurement']]}"
                    for each in sizes
                ),
                row["title"],
            ]
            for row in rows
        ],
    )
    totals = ", ".join(
        f"{each} {duration(sum(row[f'{each}_s'] for row in rows if row['name'] in first.values()))}"
        for each in sizes
    )
    output.line(f"All together: {totals}; a quick session ends after {duration(QUICK_S)} at most")
    reasons = {m["variant"]: m["reason"] for row in rows for m in row["missing"]}
    for variant, reason in reasons.items():
        output.line(f"{variant} will be skipped: {reason}")
    return EXIT_OK


def _row(experiment: Experiment, size: Size) -> dict[str, Any]:
    measurement = experiment.measurement
    of = measurement.cells(size)
    gaps = missing(measurement, of)
    planned = {each: _trials(measurement, each) for each in Size}
    return {
        "name": experiment.name,
        "group": experiment.group,
        "title": experiment.title,
        "question": experiment.question,
        "measurement": measurement.name,
        "variants": list(dict.fromkeys(variant for cell in of for variant in cell.variants)),
        "cells": [dict(cell.settings) for cell in of],
        "trials": len(planned[size]),
        "expected_s": round(TimeLeft().total(planned[size])),
        **{f"{each}_s": round(TimeLeft().total(planned[each])) for each in Size},
        "missing": [{"variant": gap.variant, "reason": gap.reason} for gap in gaps],
    }


def _trials(measurement: Measurement, size: Size) -> list[Step]:
    """All trials of a session of this size that can run here."""
    of = measurement.cells(size)
    return list(steps(measurement, of, missing(measurement, of), pairs_of(size, None)))
