"""Many runs, one after another: seeds take turns through the scenarios.

Invariant: a run of a campaign is the run that its seed and scenario alone give; `replay` is the
command that repeats it.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog.simulate.run import Outcome, run_seed
from tidelog.simulate.scenario import Scenario

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
    campaign: Campaign, listener: Callable[[str], None] | None = None
) -> Iterator[Outcome]:
    """Do the runs in order; each outcome as soon as it is there."""
    with tempfile.TemporaryDirectory(prefix="tidelog-simulate-", dir=_disk()) as directory:
        for seed, scenario in campaign:
            below = Path(directory) / f"{scenario.name}-{seed}"
            try:
                yield run_seed(seed, scenario, below, listener)
            finally:
                shutil.rmtree(below, ignore_errors=True)


def replay(outcome: Outcome) -> str:
    """The command that repeats a run and shows all of it."""
    return (
        f"tidelog simulate --scenario {outcome.scenario} --first-seed {outcome.seed} --seeds 1 "
        "--trace"
    )


def _disk() -> Path | None:
    return _MEMORY_DISK if _MEMORY_DISK.is_dir() else None
