"""The command of the simulator: whole jobs in virtual time, under faults that a seed decides."""

import os
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import click

from tests.simulator.run.campaign import Campaign, replay, run_campaign
from tests.simulator.run.run import Outcome
from tests.simulator.run.scenario import SCENARIOS
from tidelog.cli.output import Output
from tidelog.cli.store.options import EXIT_INTERRUPTED, EXIT_OK, EXIT_PROBLEM
from tidelog.effects import Effects, SystemClock

_EVERY_S: Final = 10.0
"""How often a line of progress appears where there is no terminal."""
_NEW_SEEDS: Final = 10**12
"""A new first seed lies below: nobody draws the same one twice."""
_NAMED: Final = 20
"""Violating seeds that the end of a report names."""


@click.command("simulate")
@click.pass_context
@click.option("--seeds", default=100, show_default=True, type=click.IntRange(1), help="Runs to do.")
@click.option("--first-seed", type=click.IntRange(0), help="Where to begin.  [default: 0]")
@click.option(
    "--new-seeds", is_flag=True, help="Begin at a seed drawn by chance; it is printed first."
)
@click.option(
    "--scenario",
    "names",
    multiple=True,
    type=click.Choice(list(SCENARIOS)),
    help="Only this one; several take turns. All of them by default.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    help="Processes; the outcome does not depend on them.  [default: one per core]",
)
@click.option("--keep-going", is_flag=True, help="Go on after a violation.")
@click.option("--trace", is_flag=True, help="Print every event.")
@click.option("--list", "listing", is_flag=True, help="List the scenarios and do nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; see docs/reference/cli-json.md.")
def command(
    context: click.Context,
    seeds: int,
    first_seed: int | None,
    new_seeds: bool,
    names: tuple[str, ...],
    jobs: int | None,
    keep_going: bool,
    trace: bool,
    listing: bool,
    as_json: bool,
) -> None:
    """Run whole jobs in virtual time, under crashes and faults, and check what must hold.

    A seed and a scenario decide a run alone: the same seed gives the same trace. Exits with 1 when
    a property was violated; the report names the command that repeats the run.
    """
    output = Output(as_json=as_json)
    if listing:
        _list(output)
        return
    if new_seeds and first_seed is not None:
        raise click.UsageError("--new-seeds draws the first seed, --first-seed names it: use one")
    first = Effects().rng.randrange(_NEW_SEEDS) if new_seeds else first_seed or 0
    scenarios = [SCENARIOS[name] for name in names or SCENARIOS]
    processes = 1 if trace else min(seeds, jobs or os.cpu_count() or 1)
    report = _Report(output, Campaign(scenarios, first, seeds), processes, new_seeds)
    context.exit(report.run(keep_going=keep_going, trace=trace))


def _list(output: Output) -> None:
    if output.as_json:
        output.document([{"name": s.name, "about": s.about} for s in SCENARIOS.values()])
    else:
        output.table(["scenario", "what happens"], [[s.name, s.about] for s in SCENARIOS.values()])


def _violations(count: int) -> str:
    return f"{count} VIOLATION{'S' * (count > 1)}"


@dataclass(slots=True)
class _Progress:
    """How far a campaign is: one line that renews itself on a terminal, now and then elsewhere."""

    seeds: int
    quiet: bool
    since: float
    told: float = 0.0
    shown: bool = False

    def tell(self, done: int, violations: int, now: float) -> None:
        terminal = sys.stderr.isatty()
        pause = 0.0 if terminal else _EVERY_S
        if self.quiet or now - max(self.told, self.since) < pause:
            return
        self.told = now
        rate = done / (now - self.since)
        left = (self.seeds - done) / rate
        found = f", {_violations(violations)}" if violations else ""
        line = f"{done} of {self.seeds} seeds, {rate:.1f} seeds/s, {left:.0f} s left{found}"
        click.echo(line, err=True, nl=not terminal)
        self.shown = terminal

    def clear(self) -> None:
        """Take the line away before something else is printed."""
        if self.shown:
            click.echo("\r\x1b[K", err=True, nl=False)
            self.shown = False


@dataclass(slots=True)
class _Report:
    """Runs a campaign and tells how it goes."""

    output: Output
    campaign: Campaign
    processes: int
    new_seeds: bool
    violations: list[Outcome] = field(default_factory=list)
    runs: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)
    virtual_s: float = 0.0

    def run(self, *, keep_going: bool, trace: bool) -> int:
        clock = SystemClock()
        started = clock.monotonic()
        listener = self.output.line if trace and not self.output.as_json else None
        shown = _Progress(self.campaign.seeds, quiet=self.output.as_json or trace, since=started)
        interrupted = False
        try:
            if self.new_seeds and not self.output.as_json:
                first = self.campaign.first_seed
                self.output.line(f"seeds {first} to {first + self.campaign.seeds - 1}")
            for outcome in run_campaign(self.campaign, listener, processes=self.processes):
                shown.clear()
                self._count(outcome)
                shown.tell(self.runs.total(), len(self.violations), clock.monotonic())
                if self.violations and not keep_going:
                    break
        except KeyboardInterrupt:
            interrupted = True
        shown.clear()
        self._tell(clock.monotonic() - started)
        if interrupted:
            return EXIT_INTERRUPTED
        return EXIT_PROBLEM if self.violations else EXIT_OK

    def _count(self, outcome: Outcome) -> None:
        self.runs[outcome.scenario] += 1
        for name in ("events", "requests", "checkpoints", "incarnations"):
            self.totals[name] += getattr(outcome, name)
        self.virtual_s += outcome.virtual_s
        if outcome.violation is not None:
            self.violations.append(outcome)
            if not self.output.as_json:
                self._show(outcome)

    def _show(self, outcome: Outcome) -> None:
        line = self.output.line
        assert outcome.violation is not None
        line(f"seed {outcome.seed}, scenario {outcome.scenario}: VIOLATION")
        line(f"  property: {outcome.violation.property}")
        line(f"  {outcome.violation.detail}")
        line(f"  job: {outcome.plan}")
        if len(self.violations) == 1:
            line(f"  the last {len(outcome.last_events)} of {outcome.events} events:")
            for event in outcome.last_events:
                line(f"    {event}")
        line(f"  replay: {replay(outcome)}")

    def _tell(self, seconds: float) -> None:
        done = self.runs.total()
        if self.output.as_json:
            self.output.document(self._fields(seconds))
            return
        for scenario, runs in self.runs.items():
            bad = sum(outcome.scenario == scenario for outcome in self.violations)
            self.output.line(f"{scenario:12} {runs:6} runs, {bad} violations")
        self.output.line(
            f"{done} seeds in {seconds:.1f} s ({done / max(seconds, 1e-9):.1f} seeds/s): "
            f"{self.virtual_s:.0f} virtual seconds, {self.totals['incarnations']} incarnations, "
            f"{self.totals['checkpoints']} checkpoints, {self.totals['requests']} requests"
        )
        found = len(self.violations)
        if done < self.campaign.seeds and not found:
            self.output.line(f"interrupted: {self.campaign.seeds - done} seeds were not run")
        if found > 1:
            for outcome in self.violations[:_NAMED]:
                assert outcome.violation is not None
                self.output.line(f"{outcome.violation.property:16} {replay(outcome)}")
            if found > _NAMED:
                self.output.line(f"... and {found - _NAMED} more")
        self.output.line(_violations(found) if found else "no violation")

    def _fields(self, seconds: float) -> dict[str, Any]:
        return {
            "first_seed": self.campaign.first_seed,
            "seeds": self.runs.total(),
            "runs": dict(self.runs),
            "seconds": seconds,
            "virtual_seconds": self.virtual_s,
            **self.totals,
            "violations": [
                {
                    "seed": outcome.seed,
                    "scenario": outcome.scenario,
                    "property": str(outcome.violation.property),
                    "detail": outcome.violation.detail,
                    "plan": outcome.plan,
                    "last_events": outcome.last_events,
                    "replay": replay(outcome),
                }
                for outcome in self.violations
                if outcome.violation is not None
            ],
        }
