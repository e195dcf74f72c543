"""Many runs: seeds take turns through the scenarios.

Invariant: a run of a campaign is the run that its seed and scenario alone give, in whichever
process; `replay` is the command that repeats it.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.simulator.run.run import Outcome, run_below
from tests.simulator.run.scenario import Scenario
from tests.simulator.run.workers import run_on_workers

_MEMORY_DISK: Final = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Campaign:
    """Which runs to do."""

    scenarios: Sequence[Scenario]
    first_seed: int
    seeds: int

    def __iter__(self) -> Iterator[tuple[int, Scenario]]:
        for number in range(self.seeds):
            seed = self.first_seed + number
            yield seed, self.scenarios[seed % len(self.scenarios)]


def run_campaign(
    campaign: Campaign, listener: Callable[[str], None] | None = None, *, processes: int = 1
) -> Iterator[Outcome]:
    """Do the runs; outcomes come in order, each as soon as it is there.

    One process is this one, and `listener` gets the events of its runs.
    """
    with tempfile.TemporaryDirectory(prefix="tidelog-simulate-", dir=_disk()) as directory:
        if processes > 1:
            yield from run_on_workers(campaign, processes, Path(directory))
            return
        for seed, scenario in campaign:
            yield run_below(seed, scenario, Path(directory), listener)


def replay(outcome: Outcome) -> str:
    """The command that repeats a run and shows all of it."""
    return (
        f"python -m tests.simulator --scenario {outcome.scenario} --first-seed {outcome.seed} "
        "--seeds 1 --trace"
    )


def _disk() -> Path | None:
    return _MEMORY_DISK if _MEMORY_DISK.is_dir() else None
