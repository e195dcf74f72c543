"""`tidelog plan`: the settings that reach a restore time and a budget, and why these.

Invariant: every sentence names the option to change.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import click

from tidelog.cli.estimate.job import DescribedJob, estimate_fields, on_a_job
from tidelog.cli.estimate.prices import bill_fields
from tidelog.cli.output import Cell, Output
from tidelog.cli.store.options import EXIT_OK, EXIT_PROBLEM
from tidelog.cli.values import amount, duration, duration_text, short, size, span
from tidelog.cost.model.usage import DAY_S
from tidelog.cost.plan import (
    Binding,
    Candidate,
    CheckpointPlan,
    Money,
    Obstacle,
    PlanTarget,
    PlanTargets,
    focus,
    in_currency,
    make_plans,
)
from tidelog.cost.prices import Bill
from tidelog.options.units import NUMBER

_MONEY: Final = re.compile(rf"{NUMBER} ?([A-Z]{{3}})")
_LINES: Final = {
    "storage": ("storage", "a shorter interval or fewer --retain lower it"),
    "put": ("PUT requests", "a longer --checkpoint-interval lowers it"),
    "list": ("LIST requests", "fewer --restores-per-month lower it"),
    "get": ("GET requests", "fewer --restores-per-month lower it"),
    "delete": ("DELETE requests", "a longer --checkpoint-interval lowers it"),
    "transfer": ("transfer", "a --provider that does not charge for bytes lowers it"),
}
"""The lines of a bill: for people, and what lowers them."""


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
    """Find the settings that reach targets at the least cost, and explain what binds them.

    Targets are --restore, --budget and --checkpoint-interval. Exits with 1 when no settings meet
    all of them: then it names the obstacle and what comes nearest.
    """
    targets = PlanTargets(job.settings.checkpoint_interval, restore, budget)
    books, left_out = in_currency(job.prices.books, budget)
    job = replace(job, prices=replace(job.prices, books=books))
    plans = make_plans(job.workload, job.settings, books, targets, egress=job.egress)
    shown = focus(plans, targets)
    if output.as_json:
        fields = job.fields()
        fields["warnings"] += left_out
        fields["targets"] = {
            "checkpoint_s": targets.checkpoint_s,
            "restore_s": restore,
            "budget": budget.amount if budget else None,
            "currency": budget.currency if budget else None,
        }
        output.document(fields | {"plans": [_plan_fields(plan, targets) for plan in plans]})
    else:
        _show(output, plans, shown, targets)
        job.prices.show(output, *left_out)
    return EXIT_OK if shown.met else EXIT_PROBLEM


def _plan_fields(plan: CheckpointPlan, targets: PlanTargets) -> dict[str, Any]:
    number = plan.candidates.index
    candidates = [
        {
            "candidate": at,
            "materialize_interval_s": each.interval_s,
            "replay_target_s": each.replay_target_s,
            "misses": targets.missed_by(each),
            "bill": bill_fields(each.bill),
            **estimate_fields(each.estimate),
        }
        for at, each in enumerate(plan.candidates)
    ]
    return {
        "provider": plan.book.provider,
        "met": plan.met,
        "nearest": candidates[number(plan.nearest)],
        "bindings": [{"target": b.target, "instead": number(b.instead)} for b in plan.bindings],
        "obstacles": [
            {"target": o.target, "alone": o.alone, "best": number(o.best)} for o in plan.obstacles
        ],
        "candidates": candidates,
    }


def _show(
    output: Output, plans: Sequence[CheckpointPlan], shown: CheckpointPlan, targets: PlanTargets
) -> None:
    """All providers in short, one of them in full."""
    if len(plans) > 1:
        output.table(
            ["provider", "materialize every", "restore", "cost a month", "verdict"],
            [
                [
                    plan.book.provider,
                    _interval(plan.nearest),
                    span(plan.nearest.estimate.restore_s),
                    str(plan.nearest.cost),
                    _verdict(plan, targets),
                ]
                for plan in plans
            ],
        )
        output.line()
    output.line(f"{shown.book.provider}, amounts in {shown.book.currency} a month:")
    columns = ("materialize every", "replay target", "checkpoint", "restore", "log", "PUT/day")
    output.table([*columns, "cost", ""], [_row(each, shown) for each in shown.candidates])
    output.line()
    for line in _explained(shown, targets):
        output.line(line)


def _row(candidate: Candidate, plan: CheckpointPlan) -> list[Cell]:
    estimate, replay = candidate.estimate, candidate.replay_target_s
    mark = "<- recommended" if plan.met else "<- nearest"
    return [
        _interval(candidate),
        "-" if replay is None else duration_text(replay),
        "-" if estimate.checkpoint_s is None else span(estimate.checkpoint_s),
        span(estimate.restore_s),
        "-" if estimate.log is None else size(int(estimate.log.peak_bytes)),
        short(estimate.usage.puts_per_s * DAY_S),
        amount(candidate.bill.total),
        mark if candidate is plan.nearest else "",
    ]


def _interval(candidate: Candidate) -> str:
    interval = candidate.interval_s
    return "changelog off" if interval is None else duration_text(interval)


def _verdict(plan: CheckpointPlan, targets: PlanTargets) -> str:
    missed = targets.missed_by(plan.nearest).items()
    misses = [f"{target} by {share:.0%}" for target, share in missed if share > 0]
    return f"misses {', '.join(misses)}" if misses else "meets the targets"


def _explained(plan: CheckpointPlan, targets: PlanTargets) -> Iterator[str]:
    chosen = plan.nearest
    if plan.met:
        yield f"recommended: {_reached(chosen)}"
        yield f"  tidelog run JOB --store URL {_options(chosen)}"
        yield from (_bound(binding, chosen, targets) for binding in plan.bindings)
        if not plan.bindings:
            yield "no target binds: of the settings tried none is cheaper"
    else:
        yield f"no settings meet the targets at {plan.book.provider}:"
        for obstacle in plan.obstacles:
            yield f"  {_obstructed(obstacle, targets)}"
        yield f"nearest: {_reached(chosen)}; {_verdict(plan, targets)}"
        yield f"  tidelog run JOB --store URL {_options(chosen)}"
    yield f"  {_lines(chosen.bill)}"


def _reached(candidate: Candidate) -> str:
    restore = span(candidate.estimate.restore_s)
    return f"{_interval(candidate)}, {candidate.cost} a month, restore {restore}"


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


def _wanted(target: PlanTarget, targets: PlanTargets) -> str:
    if target is PlanTarget.RESTORE and targets.restore_s is not None:
        return f"--restore {duration_text(targets.restore_s)}"
    if target is PlanTarget.BUDGET:
        return f"--budget {targets.budget}"
    return f"--checkpoint-interval {duration_text(targets.checkpoint_s)}"


def _bound(binding: Binding, chosen: Candidate, targets: PlanTargets) -> str:
    instead = binding.instead
    return (
        f"{_wanted(binding.target, targets)} binds: without it {_interval(instead)} would do, "
        f"for {instead.cost} instead of {chosen.cost} a month"
    )


def _obstructed(obstacle: Obstacle, targets: PlanTargets) -> str:
    wanted, best = _wanted(obstacle.target, targets), obstacle.best
    if not obstacle.alone:
        return f"{wanted} excludes the other targets; it would take {_reached(best)}"
    return f"{wanted} cannot be met: {_least(obstacle.target, best)}"


def _least(target: PlanTarget, best: Candidate) -> str:
    interval, bill = _interval(best), best.bill
    if target is PlanTarget.BUDGET:
        largest = max(_LINES, key=lambda line: getattr(bill, line))
        name, lower = _LINES[largest]
        return (
            f"the least is {best.cost} ({interval}), {name} being "
            f"{amount(getattr(bill, largest))} of it: {lower}"
        )
    if target is PlanTarget.RESTORE:
        return (
            f"the least is {span(best.estimate.restore_s)} ({interval}), mostly reading "
            "tables: more --bandwidth or more --processes shorten it"
        )
    return (
        f"a checkpoint takes at least {span(best.estimate.cycle_s)} ({interval}): more "
        "--bandwidth or less --latency shorten it"
    )


def _lines(bill: Bill) -> str:
    parts = [
        f"{name} {amount(getattr(bill, line))}"
        for line, (name, _) in _LINES.items()
        if getattr(bill, line) >= 0.005
    ]
    return f"of the cost: {', '.join(parts) or 'next to nothing'}"
