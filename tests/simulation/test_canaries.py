"""A simulation that finds nothing proves nothing: planted defects are found within a few seeds."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulation import canaries
from tidelog.simulate.run import Outcome, run_seed
from tidelog.simulate.scenario import SCENARIOS


def first_violation(scenario: str, seeds: range, directory: Path) -> Outcome | None:
    for seed in seeds:
        outcome = run_seed(seed, SCENARIOS[scenario], directory / str(seed))
        if outcome.violation is not None:
            return outcome
    return None


@pytest.mark.parametrize(
    ("canary", "scenario", "seeds"),
    [
        (canaries.log_cut_one_change_too_early, "calm", 10),
        (canaries.commit_before_the_manifest_is_durable, "calm", 10),
        (canaries.barriers_that_hold_nothing_back, "crashes", 80),
        (canaries.a_taken_slot_counts_as_won, "zombies", 20),
        (canaries.a_log_that_is_never_cut, "calm", 15),
        (canaries.objects_in_use_are_collected, "store", 20),
        (canaries.an_upload_that_ends_wakes_too_early, "store", 80),
    ],
)
def test_a_planted_defect_is_found_within_a_few_seeds(
    canary: Callable[[pytest.MonkeyPatch], None],
    scenario: str,
    seeds: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    canary(monkeypatch)
    assert first_violation(scenario, range(seeds), tmp_path) is not None
