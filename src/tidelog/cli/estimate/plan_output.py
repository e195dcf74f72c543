"""How `plan` explains itself to people: tables, the recommendation, what binds or obstructs.

Invariant: every sentence names the option to change.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from tidelog.cli.output import Cell, Output
from tidelog.cli.values import amount, duration_text, short, size, span
from tidelog.cost.model.bill import Bill
from tidelog.cost.model.usage import DAY_S
from tidelog.cost.plan.candidates import Candidate
from tidelog.cost.plan.decision import Binding, Decision, Obstacle
from tidelog.cost.plan.planning import Plan
from tidelog.cost.plan.targets import Target, Targets, excess

_LINES: Final = {
    "storage": ("storage", "a shorter interval or fewer --retain lower it"),
    "put": ("PUT requests", "a longer --checkpoint-interval lowers it"),
    "list": ("LIST requests", "fewer --restores-per-month lower it"),
    "get": ("GET requests", "fewer --restores-per-month lower it"),
    "delete": ("DELETE requests", "a longer --checkpoint-interval lowers it"),
    "transfer": ("transfer", "a --provider that does not charge for bytes lowers it"),
}
"""The lines of a bill: for people, and what lowers them."""


def print_plans(output: Output, plans: Sequence[Plan], shown: Plan, targets: Targets) -> None:
    """All providers in short, one of them in full."""
    if len(plans) > 1:
        _print_providers(output, plans, targets)
        output.line()
    output.line(f"{shown.book.provider}, amounts in {shown.book.currency} a month:")
    _print_candidates(output, shown)
    output.line()
    for line in _explained(shown, targets):
        output.line(line)


def _print_providers(output: Output, plans: Sequence[Plan], targets: Targets) -> None:
    output.table(
        ["provider", "materialize every", "restore", "cost a month", "verdict"],
        [
            [
                plan.book.provider,
                _interval(plan.decision.nearest),
                span(plan.decision.nearest.estimate.restore_s),
                f"{amount(plan.decision.nearest.bill.total)} {plan.book.currency}",
                _verdict(plan.decision, targets),
            ]
            for plan in plans
        ],
    )


def _print_candidates(output: Output, plan: Plan) -> None:
    output.table(
        [
            "materialize every",
            "replay target",
            "checkpoint",
            "restore",
            "log",
            "PUT/day",
            "cost",
            "",
        ],
        [_row(candidate, plan.decision) for candidate in plan.candidates],
    )


def _row(candidate: Candidate, decision: Decision) -> list[Cell]:
    estimate = candidate.estimate
    replay = candidate.replay_target_s
    mark = "recommended" if decision.recommended else "nearest"
    return [
        _interval(candidate),
        "-" if replay is None else duration_text(replay),
        "-" if estimate.checkpoint_s is None else span(estimate.checkpoint_s),
        span(estimate.restore_s),
        "-" if estimate.log is None else size(int(estimate.log.peak_bytes)),
        short(estimate.usage.puts_per_s * DAY_S),
        amount(candidate.bill.total),
        f"<- {mark}" if candidate is decision.nearest else "",
    ]


def _interval(candidate: Candidate) -> str:
    interval = candidate.interval_s
    return "changelog off" if interval is None else duration_text(interval)


def _verdict(decision: Decision, targets: Targets) -> str:
    if decision.recommended:
        return "meets the targets"
    missed = excess(targets, decision.nearest.reached)
    return "misses " + ", ".join(
        f"{target} by {share:.0%}" for target, share in missed.items() if share > 0
    )


def _explained(plan: Plan, targets: Targets) -> Iterator[str]:
    decision = plan.decision
    chosen = decision.nearest
    if decision.recommended:
        yield f"recommended: {_reached(chosen)}"
        yield f"  tidelog run JOB --store URL {_options(chosen)}"
        yield from (_bound(binding, chosen, targets) for binding in decision.bindings)
        if not decision.bindings:
            yield "no target binds: of the settings tried none is cheaper"
    else:
        yield f"no settings meet the targets at {plan.book.provider}:"
        for obstacle in decision.obstacles:
            yield f"  {_obstructed(obstacle, targets)}"
        yield f"nearest: {_reached(chosen)}; {_verdict(decision, targets)}"
        yield f"  tidelog run JOB --store URL {_options(chosen)}"
    yield f"  {_lines(chosen.bill)}"


def _reached(candidate: Candidate) -> str:
    cost = candidate.reached.cost
    return f"{_interval(candidate)}, {cost} a month, restore {span(candidate.estimate.restore_s)}"


def _options(candidate: Candidate) -> str:
    settings = candidate.settings
    options = [
        f"--parallelism {settings.parallelism // settings.processes}",
        f"--checkpoint-interval {duration_text(settings.checkpoint_interval)}",
        f"--retain {settings.retain}",
    ]
    if candidate.interval_s is None or candidate.replay_target_s is None:
        options.append("--no-changelog")
    else:
        options.append(f"--materialize-interval {duration_text(candidate.interval_s)}")
        options.append(f"--replay-target {duration_text(candidate.replay_target_s)}")
    return " ".join(options)


def _wanted(target: Target, targets: Targets) -> str:
    if target is Target.RESTORE and targets.restore_s is not None:
        return f"--restore {duration_text(targets.restore_s)}"
    if target is Target.BUDGET and targets.budget is not None:
        return f"--budget {targets.budget}"
    return f"--checkpoint-interval {duration_text(targets.checkpoint_s)}"


def _bound(binding: Binding, chosen: Candidate, targets: Targets) -> str:
    instead = binding.instead
    return (
        f"{_wanted(binding.target, targets)} binds: without it {_interval(instead)} would do, "
        f"for {instead.reached.cost} instead of {chosen.reached.cost} a month"
    )


def _obstructed(obstacle: Obstacle, targets: Targets) -> str:
    wanted, best = _wanted(obstacle.target, targets), obstacle.best
    if not obstacle.alone:
        return f"{wanted} excludes the other targets; it would take {_reached(best)}"
    return f"{wanted} cannot be met: {_least(obstacle.target, best)}"


def _least(target: Target, best: Candidate) -> str:
    if target is Target.BUDGET:
        bill = best.bill
        largest = max(_LINES, key=lambda line: getattr(bill, line))
        name, lower = _LINES[largest]
        return (
            f"the least is {best.reached.cost} ({_interval(best)}), {name} being "
            f"{amount(getattr(bill, largest))} of it: {lower}"
        )
    if target is Target.RESTORE:
        return (
            f"the least is {span(best.estimate.restore_s)} ({_interval(best)}), mostly reading "
            "tables: more --bandwidth or more --processes shorten it"
        )
    return (
        f"a checkpoint takes at least {span(best.estimate.cycle_s)} ({_interval(best)}): more "
        "--bandwidth or less --latency shorten it"
    )


def _lines(bill: Bill) -> str:
    parts = [
        f"{name} {amount(getattr(bill, line))}"
        for line, (name, _) in _LINES.items()
        if getattr(bill, line) >= 0.005
    ]
    return f"of the cost: {', '.join(parts) or 'next to nothing'}"
