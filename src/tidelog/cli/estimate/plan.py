"""`tidelog plan`: the settings that reach a restore time and a budget, and what all others miss."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil
from typing import Any, Final

import click

from tidelog.cli.estimate.described import DescribedJob, on_a_job
from tidelog.cli.estimate.estimate import estimate_fields
from tidelog.cli.estimate.prices import bill_fields
from tidelog.cli.exit_codes import EXIT_OK, EXIT_PROBLEM
from tidelog.cli.output import Output, Rows
from tidelog.cli.values import amount, duration, duration_text, short, size, span
from tidelog.cost.model.usage import DAY_S
from tidelog.cost.plan import Candidate, Money, PlanTargets, candidates, choose, in_currency
from tidelog.options.units import NUMBER

_MONEY: Final = re.compile(rf"{NUMBER} ?([A-Z]{{3}})")


def money(text: str) -> Money:
    """An amount with its currency, such as 200CNY; an option's type. Raises BadParameter."""
    match = _MONEY.fullmatch(text)
    if match is None:
        raise click.BadParameter(f"{text!r} is no amount; write 200CNY or '19.90 EUR'")
    return Money(float(match[1]), match[2])


@click.command("plan")
@on_a_job
@click.option(
    "--restore",
    type=duration,
    metavar="TIME",
    help="Target: a started process has restored its state after this long.",
)
@click.option(
    "--lateness",
    type=duration,
    metavar="TIME",
    help="Target: output is visible after this long. Without --checkpoint-interval the plan "
    "chooses that, too.",
)
@click.option(
    "--budget", type=money, metavar="MONEY", help="Target: a month costs no more, such as 200CNY."
)
def command(
    output: Output,
    job: DescribedJob,
    restore: float | None,
    lateness: float | None,
    budget: Money | None,
) -> int:
    """Find the settings that reach targets at the least cost, and say what all others miss.

    Targets are --restore, --lateness, --budget and --checkpoint-interval. Exits with 1 when no
    settings meet all of them: then it names what comes nearest.
    """
    interval_s = job.settings.checkpoint_interval
    free = lateness is not None and not job.checkpoint_interval_said
    targets = PlanTargets(None if free else interval_s, restore, lateness, budget)
    books, left_out = in_currency(job.prices.books, budget)
    job = replace(job, prices=replace(job.prices, books=books))
    choices: list[Candidate] = []
    for checkpoint_s in targets.intervals(interval_s):
        settings = replace(job.settings, checkpoint_interval=checkpoint_s)
        choices += candidates(job.workload, settings, books, egress=job.prices.egress)
    chosen = choose(choices, targets)
    met = targets.distance(chosen) <= 0
    fields = job.fields()
    fields["warnings"] += left_out
    fields["targets"] = {
        "checkpoint_s": targets.checkpoint_s,
        "restore_s": restore,
        "late_s": lateness,
        "budget": budget and budget.amount,
        "currency": budget and budget.currency,
    }
    fields |= {"met": met, "nearest": choices.index(chosen)}
    fields["candidates"] = [_fields(candidate, targets) for candidate in choices]
    output.show(fields, *_described(choices, chosen, targets), *job.prices.lines(*left_out))
    return EXIT_OK if met else EXIT_PROBLEM


def _fields(candidate: Candidate, targets: PlanTargets) -> dict[str, Any]:
    return {
        "checkpoint_interval_s": candidate.settings.checkpoint_interval,
        "materialize_interval_s": candidate.interval_s,
        "replay_target_s": candidate.replay_target_s,
        "misses": targets.missed_by(candidate),
        "bill": bill_fields(candidate.bill),
        **estimate_fields(candidate.estimate),
    }


def _described(
    choices: Sequence[Candidate], chosen: Candidate, targets: PlanTargets
) -> Iterator[str | Rows]:
    """The candidates at the chosen provider and interval, costs of other intervals, the command."""
    met = targets.distance(chosen) <= 0
    provider, currency = chosen.bill.provider, chosen.bill.currency
    interval_s = chosen.settings.checkpoint_interval
    by_interval: dict[float, list[Candidate]] = defaultdict(list)
    for candidate in choices:
        if candidate.bill.provider == provider:
            by_interval[candidate.settings.checkpoint_interval].append(candidate)
    every = duration_text(interval_s)
    yield f"{provider}, amounts in {currency} a month, a checkpoint every {every}:"

    def remark(candidate: Candidate) -> str:
        if candidate is chosen and met:
            return "<- recommended"
        return "<- nearest" if candidate is chosen else _missed(candidate, targets)

    yield Rows(
        by_interval[interval_s],
        ("materialize every", _interval),
        ("replay target", "replay_target_s", duration_text),
        ("checkpoint", lambda c: span(c.estimate.checkpoint_s)),
        ("first record", lambda c: span(c.estimate.first_record_s)),
        ("restore", lambda c: span(c.estimate.restore_s)),
        ("log", lambda c: c.estimate.log and size(int(c.estimate.log.peak_bytes))),
        ("PUT/day", lambda c: short(c.estimate.usage.puts_per_s * DAY_S)),
        ("cost", lambda c: amount(c.bill.total)),
        ("", remark),
    )
    yield ""
    other_targets = replace(targets, checkpoint_s=None, late_s=None)
    yield Rows(
        [choose(group, other_targets) for group in by_interval.values()],
        ("checkpoint every", lambda c: duration_text(c.settings.checkpoint_interval)),
        ("output late by", lambda c: span(c.estimate.late_s)),
        ("materialize every", _interval),
        ("first record", lambda c: span(c.estimate.first_record_s)),
        ("restore", lambda c: span(c.estimate.restore_s)),
        ("PUT/day", lambda c: short(c.estimate.usage.puts_per_s * DAY_S)),
        ("cost", lambda c: amount(c.bill.total)),
        ("", lambda c: _missed(c, replace(targets, checkpoint_s=None))),
    )
    yield ""
    if not met:
        yield f"no settings meet the targets; what comes nearest {_missed(chosen, targets)}"
    late = f"output late by {span(chosen.estimate.late_s)} at most"
    reached = f"{chosen.cost} a month, restore {span(chosen.estimate.restore_s)}, {late}"
    yield f"{'recommended' if met else 'nearest'}: {_interval(chosen)}, {reached}"
    yield f"  tidelog run JOB --store URL {_options(chosen)}"


def _missed(candidate: Candidate, targets: PlanTargets) -> str:
    missed = targets.missed_by(candidate).items()
    parts = [f"{target} by {share:.0%}" for target, share in missed if share > 0]
    return f"misses {', '.join(parts)}" if parts else ""


def _interval(candidate: Candidate) -> str:
    interval = candidate.interval_s
    return "changelog off" if interval is None else duration_text(interval)


def _options(candidate: Candidate) -> str:
    settings = candidate.settings
    interval, replay = candidate.interval_s, candidate.replay_target_s
    workers = f"--workers {settings.workers} " if settings.workers > 1 else ""
    options = (
        f"{workers}--parallelism {ceil(settings.parallelism / settings.processes)} "
        "--checkpoint-interval "
        f"{duration_text(settings.checkpoint_interval)} --retain {settings.retain} "
    )
    if interval is None or replay is None:
        return options + "--no-changelog"
    target = duration_text(replay)
    return options + f"--materialize-interval {duration_text(interval)} --replay-target {target}"
