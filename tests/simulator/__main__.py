"""`python -m tests.simulator`: whole jobs in virtual time, under faults that a seed decides."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import click

from tests.simulator.run.campaign import Campaign, Outcome, replay, run_campaign
from tests.simulator.run.scenario import SCENARIOS
from tidelog.cli.exit_codes import EXIT_INTERRUPTED, EXIT_OK, EXIT_PROBLEM
from tidelog.cli.output import Output, Rows
from tidelog.effects import Effects, SystemClock

_EVERY_S: Final = 10.0
"""How often a line of progress appears."""
_NEW_SEEDS: Final = 10**12
"""A new first seed lies below: nobody draws the same one twice."""


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
        rows = [{"name": scenario.name, "about": scenario.about} for scenario in SCENARIOS.values()]
        output.show(rows, Rows(rows, "name", "about"))
        return
    if new_seeds and first_seed is not None:
        raise click.UsageError("--new-seeds draws the first seed, --first-seed names it: use one")
    first = Effects().rng.randrange(_NEW_SEEDS) if new_seeds else first_seed or 0
    campaign = Campaign([SCENARIOS[name] for name in names or SCENARIOS], first, seeds)
    processes = 1 if trace else min(seeds, jobs or os.cpu_count() or 1)
    report = _Report(output, campaign, processes, new_seeds)
    context.exit(report.run(keep_going=keep_going, trace=trace))


def _violations(count: int) -> str:
    return f"{count} VIOLATION{'S' * (count > 1)}"


@dataclass(slots=True)
class _Report:
    """Runs a campaign and says how it goes."""

    output: Output
    campaign: Campaign
    processes: int
    new_seeds: bool
    violations: list[dict[str, Any]] = field(default_factory=list)
    runs: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)
    virtual_s: float = 0.0

    def run(self, *, keep_going: bool, trace: bool) -> int:
        clock = SystemClock()
        started = shown_at = clock.monotonic()
        quiet = self.output.as_json
        listener = self.output.line if trace and not quiet else None
        interrupted = False
        try:
            if self.new_seeds and not quiet:
                first = self.campaign.first_seed
                self.output.line(f"seeds {first} to {first + self.campaign.seeds - 1}")
            for outcome in run_campaign(self.campaign, listener, processes=self.processes):
                self._count(outcome)
                now = clock.monotonic()
                if now - shown_at >= _EVERY_S and not (trace or quiet):
                    shown_at = now
                    click.echo(self._progress(now - started), err=True)
                if self.violations and not keep_going:
                    break
        except KeyboardInterrupt:
            interrupted = True
        seconds = clock.monotonic() - started
        self.output.show(self._fields(seconds), *self._lines(seconds))
        if interrupted:
            return EXIT_INTERRUPTED
        return EXIT_PROBLEM if self.violations else EXIT_OK

    def _progress(self, seconds: float) -> str:
        done, seeds, found = self.runs.total(), self.campaign.seeds, len(self.violations)
        rate = done / seconds
        line = f"{done} of {seeds} seeds, {rate:.1f} seeds/s, {(seeds - done) / rate:.0f} s left"
        return f"{line}, {_violations(found)}" if found else line

    def _count(self, outcome: Outcome) -> None:
        self.runs[outcome.scenario] += 1
        for name in ("events", "requests", "checkpoints", "incarnations"):
            self.totals[name] += getattr(outcome, name)
        self.virtual_s += outcome.virtual_s
        if outcome.violation is not None:
            found = {
                "seed": outcome.seed,
                "scenario": outcome.scenario,
                "property": str(outcome.violation.property),
                "detail": outcome.violation.detail,
                "plan": outcome.plan,
                "last_events": outcome.last_events,
                "replay": replay(outcome),
            }
            self.violations.append(found)
            if not self.output.as_json:
                self._show(found)

    def _show(self, found: dict[str, Any]) -> None:
        line = self.output.line
        line(f"seed {found['seed']}, scenario {found['scenario']}: VIOLATION")
        line(f"  property: {found['property']}")
        line(f"  {found['detail']}")
        line(f"  job: {found['plan']}")
        if len(self.violations) == 1:
            line("  the last events:")
            for event in found["last_events"]:
                line(f"    {event}")
        line(f"  replay: {found['replay']}")

    def _lines(self, seconds: float) -> Iterator[str]:
        done, found = self.runs.total(), len(self.violations)
        bad = Counter(violation["scenario"] for violation in self.violations)
        for scenario, runs in self.runs.items():
            yield f"{scenario:12} {runs:6} runs, {bad[scenario]} violations"
        yield (
            f"{done} seeds in {seconds:.1f} s ({done / max(seconds, 1e-9):.1f} seeds/s): "
            f"{self.virtual_s:.0f} virtual seconds, {self.totals['incarnations']} incarnations, "
            f"{self.totals['checkpoints']} checkpoints, {self.totals['requests']} requests"
        )
        if done < self.campaign.seeds and not found:
            yield f"interrupted: {self.campaign.seeds - done} seeds were not run"
        if found > 1:
            for violation in self.violations:
                yield f"{violation['property']:16} {violation['replay']}"
        yield _violations(found) if found else "no violation"

    def _fields(self, seconds: float) -> dict[str, Any]:
        return {
            "first_seed": self.campaign.first_seed,
            "seeds": self.runs.total(),
            "runs": dict(self.runs),
            "seconds": seconds,
            "virtual_seconds": self.virtual_s,
            **self.totals,
            "violations": self.violations,
        }


if __name__ == "__main__":
    command(prog_name="python -m tests.simulator")
