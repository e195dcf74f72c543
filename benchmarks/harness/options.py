"""Command-line options that all experiments share."""

import argparse

from tidelog.bench.embedded.workload import WORKLOADS, Workload

QUICK_DIVISOR = 50


def parser(doc: str, *, seconds: float, reps: int, workloads: list[str]) -> argparse.ArgumentParser:
    """A parser with the shared options and these defaults."""
    options = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = options.add_argument
    add("--workload", nargs="+", choices=sorted(WORKLOADS), default=workloads)
    add("--seconds", type=float, default=seconds, help="measured time of a run")
    add("--warm", type=float, default=5.0, help="seconds between fill and measurement")
    add("--reps", type=int, default=reps, help="repetitions; variants alternate within each")
    add("--seed", type=int, default=1)
    add("--flush-rows", type=int, help="changed rows that flush the write buffer")
    add("--quick", action="store_true", help="a fiftieth of the keys, 3 s, once, no record kept")
    return options


def parse(options: argparse.ArgumentParser) -> argparse.Namespace:
    """Parse, with --quick applied."""
    parsed = options.parse_args()
    if parsed.quick:
        parsed.seconds, parsed.warm, parsed.reps = 3.0, 1.0, 1
    return parsed


def workload(parsed: argparse.Namespace, name: str) -> Workload:
    """The named workload in the size asked for."""
    return WORKLOADS[name].scaled(QUICK_DIVISOR) if parsed.quick else WORKLOADS[name]
