"""`tidelog plan`: the settings that reach a restore time and a budget, and what all others miss."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import click

from tidelog.cli.estimate.job import DescribedJob, estimate_fields, on_a_job
from tidelog.cli.estimate.prices import bill_fields
from tidelog.cli.output import Output
from tidelog.cli.store.options import EXIT_OK, EXIT_PROBLEM
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
    "--budget", type=money, metavar="MONEY", help="Target: a month costs no more, such as 200CNY."
)
def command(output: Output, job: DescribedJob, restore: float | None, budget: Money | None) -> int:
    """Find the settings that reach targets at the least cost, and say what all others miss.

    Targets are --restore, --budget and --checkpoint-interval. Exits with 1 when no settings meet
    all of them: then it names what comes nearest.
    """
    targets = PlanTargets(job.settings.checkpoint_interval, restore, budget)
    books, left_out = in_currency(job.prices.books, budget)
    job = replace(job, prices=replace(job.prices, books=books))
    found = candidates(job.workload, job.settings, books, egress=job.egress)
    chosen = choose(found, targets)
    met = targets.distance(chosen) <= 0
    if output.as_json:
        fields = job.fields()
        fields["warnings"] += left_out
        fields["targets"] = {
            "checkpoint_s": targets.checkpoint_s,
            "restore_s": restore,
            "budget": budget.amount if budget else None,
            "currency": budget.currency if budget else None,
        }
        fields |= {"met": met, "nearest": found.index(chosen)}
        output.document(fields | {"candidates": [_fields(each, targets) for each in found]})
    else:
        _show(output, found, chosen, targets)
        job.prices.show(output, *left_out)
    return EXIT_OK if met else EXIT_PROBLEM


def _fields(candidate: Candidate, targets: PlanTargets) -> dict[str, Any]:
    return {
        "materialize_interval_s": candidate.interval_s,
        "replay_target_s": candidate.replay_target_s,
        "misses": targets.missed_by(candidate),
        "bill": bill_fields(candidate.bill),
        **estimate_fields(candidate.estimate),
    }


def _show(
    output: Output, found: Sequence[Candidate], chosen: Candidate, targets: PlanTargets
) -> None:
    """The candidates at the provider of the chosen one, and the command that it stands for."""
    met = targets.distance(chosen) <= 0
    provider, currency = chosen.bill.provider, chosen.bill.currency
    output.line(f"{provider}, amounts in {currency} a month:")

    def remark(candidate: Candidate) -> str:
        if candidate is chosen and met:
            return "<- recommended"
        return "<- nearest" if candidate is chosen else _missed(candidate, targets)

    columns = ("materialize every", "replay target", "checkpoint", "restore", "log", "PUT/day")
    output.table(
        [*columns, "cost", ""],
        [
            [
                _interval(each),
                "-" if each.replay_target_s is None else duration_text(each.replay_target_s),
                span(each.estimate.checkpoint_s),
                span(each.estimate.restore_s),
                "-" if each.estimate.log is None else size(int(each.estimate.log.peak_bytes)),
                short(each.estimate.usage.puts_per_s * DAY_S),
                amount(each.bill.total),
                remark(each),
            ]
            for each in found
            if each.bill.provider == provider
        ],
    )
    output.line()
    if not met:
        output.line(f"no settings meet the targets; what comes nearest {_missed(chosen, targets)}")
    reached = f"{chosen.cost} a month, restore {span(chosen.estimate.restore_s)}"
    output.line(f"{'recommended' if met else 'nearest'}: {_interval(chosen)}, {reached}")
    output.line(f"  tidelog run JOB --store URL {_options(chosen)}")


def _missed(candidate: Candidate, targets: PlanTargets) -> str:
    missed = targets.missed_by(candidate).items()
    found = [f"{target} by {share:.0%}" for target, share in missed if share > 0]
    return f"misses {', '.join(found)}" if found else ""


def _interval(candidate: Candidate) -> str:
    interval = candidate.interval_s
    return "changelog off" if interval is None else duration_text(interval)


def _options(candidate: Candidate) -> str:
    settings, interval, replay = (
        candidate.settings,
        candidate.interval_s,
        candidate.replay_target_s,
    )
    options = (
        f"--parallelism {settings.parallelism // settings.processes} --checkpoint-interval "
        f"{duration_text(settings.checkpoint_interval)} --retain {settings.retain} "
    )
    if interval is None or replay is None:
        return options + "--no-changelog"
    target = duration_text(replay)
    return options + f"--materialize-interval {duration_text(interval)} --replay-target {target}"
