"""The options that describe a job and its prices, for `estimate` and `plan`."""

from typing import Final

import click

from tidelog.cli.durations import duration
from tidelog.cli.estimate_values import count, latency, size
from tidelog.cli.prices import on_prices

OPTIONS: Final = (
    click.option(
        "--writes-per-second",
        type=count,
        required=True,
        metavar="N",
        help="Updates of keyed state, over all subtasks, such as 20k; a list element or a timer "
        "counts as one.",
    ),
    click.option("--keys", type=count, metavar="N", help="Live keys; or give --state-size."),
    click.option(
        "--state-size",
        type=size,
        metavar="SIZE",
        help="Live state as the table stores it.  [default: keys x row]",
    ),
    click.option(
        "--key-bytes", type=size, default="16", show_default=True, metavar="SIZE", help="Of a key."
    ),
    click.option(
        "--value-bytes",
        type=size,
        default="100",
        show_default=True,
        metavar="SIZE",
        help="Of a value.",
    ),
    click.option(
        "--skew",
        type=float,
        default=0.0,
        show_default=True,
        help="Zipf exponent of the keys: 0 is uniform, 1 is what words of a language have.",
    ),
    click.option(
        "--compression",
        type=float,
        default=1.0,
        show_default=True,
        help="Size of the log as stored over its raw size; 1 is an upper limit.",
    ),
    click.option(
        "--parallelism",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Subtasks with keyed state in all; Spark: partitions.",
    ),
    click.option(
        "--processes",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Jobs that share the work, each with a store; Spark: executors.",
    ),
    click.option(
        "--checkpoint-interval",
        type=duration,
        default="1s",
        show_default=True,
        help="Spark: time between two batches.",
    ),
    click.option(
        "--retain",
        type=click.IntRange(min=1),
        default=3,
        show_default=True,
        help="Checkpoints to keep.",
    ),
    click.option(
        "--restores-per-month", type=click.FloatRange(min=0), default=30.0, show_default=True
    ),
    click.option(
        "--bandwidth",
        type=size,
        default="100MB",
        show_default=True,
        metavar="SIZE",
        help="To the store, of one process, a second.",
    ),
    click.option(
        "--latency", type=latency, default="30ms", show_default=True, help="Of one request."
    ),
    on_prices,
    click.option(
        "--egress", is_flag=True, help="What restores read leaves the provider, and is billed."
    ),
    click.option("--json", "as_json", is_flag=True, help="Print JSON; see docs/cli-json.md."),
    click.option("--debug", is_flag=True, help="Print tracebacks."),
)
