"""`tidelog plan`: the settings that reach a restore time and a budget, and why these."""

import re
from dataclasses import replace
from typing import Final

import click

from tidelog.cli.estimate.description import Described, on_a_description
from tidelog.cli.estimate.fields import plan_fields
from tidelog.cli.estimate.plan_output import print_plans
from tidelog.cli.estimate.prices import (
    price_warnings,
    print_price_warnings,
    print_prices,
    print_warnings,
    today,
)
from tidelog.cli.output import Output
from tidelog.cli.store.options import EXIT_OK, EXIT_PROBLEM
from tidelog.cli.values import duration
from tidelog.cost.plan.planning import focus, in_currency, make_plans
from tidelog.cost.plan.targets import Money, Targets
from tidelog.options.units import NUMBER

_MONEY: Final = re.compile(rf"{NUMBER} ?([A-Z]{{3}})")


def money(text: str) -> Money:
    """An amount with its currency, such as 200CNY; an option's type. Raises BadParameter."""
    match = _MONEY.fullmatch(text)
    if match is None:
        raise click.BadParameter(f"{text!r} is no amount; write 200CNY or '19.90 EUR'")
    return Money(float(match[1]), match[2])


@click.command("plan")
@on_a_description
@click.option(
    "--restore",
    type=duration,
    metavar="TIME",
    help="Target: a started process has restored its state after this long.",
)
@click.option(
    "--budget", type=money, metavar="MONEY", help="Target: a month costs no more, such as 200CNY."
)
def command(
    output: Output, described: Described, restore: float | None, budget: Money | None
) -> int:
    """Find the settings that reach targets at the least cost, and explain what binds them.

    Targets are --restore, --budget and --checkpoint-interval. Exits with 1 when no settings meet
    all of them: then it names the obstacle and what comes nearest.
    """
    targets = Targets(described.settings.checkpoint_interval, restore, budget)
    books, left_out = in_currency(described.books, budget)
    described = replace(described, books=books)
    day = today()
    warnings = price_warnings(books, day)
    plans = make_plans(
        described.workload, described.settings, books, targets, egress=described.egress
    )
    shown = focus(plans, targets)
    if output.as_json:
        output.document(plan_fields(described, targets, plans, day, [*warnings, *left_out]))
    else:
        print_plans(output, plans, shown, targets)
        print_prices(output, described.books, notes=described.notes)
        print_price_warnings(output, warnings, day)
        print_warnings(output, left_out)
    return EXIT_OK if shown.decision.recommended else EXIT_PROBLEM
