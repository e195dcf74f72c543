"""Simulated runs without a violation: seeds of all scenarios, and every seed ever found."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.simulator.run.campaign import Campaign, Outcome, replay, run_campaign, run_seed
from tests.simulator.run.scenario import SCENARIOS
from tests.support.depth import more_in_depth

MANY = range(105)
SEEDS = more_in_depth(MANY[:1], MANY)
"""The seeds that every scenario runs."""
FOUND: list[dict[str, Any]] = json.loads(Path(__file__).with_name("found.json").read_bytes())
"""Each with the property it violated and the fault; `open` while the fault is not mended."""


def complaint(outcome: Outcome) -> str:
    events = "\n".join(outcome.last_events)
    return f"{outcome.violation}\n{outcome.plan}\n{events}\nreplay: {replay(outcome)}"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_seed_violates_a_property(scenario: str) -> None:
    for outcome in run_campaign(Campaign([SCENARIOS[scenario]], SEEDS.start, len(SEEDS))):
        assert outcome.violation is None, complaint(outcome)


@pytest.mark.parametrize(
    ("scenario", "seed"),
    [
        pytest.param(
            found["scenario"],
            found["seed"],
            id=f"{found['scenario']}-{found['seed']}",
            marks=[pytest.mark.xfail(reason=found["fault"])] if found.get("open") else [],
        )
        for found in FOUND
    ],
)
def test_a_seed_that_once_found_a_fault_stays_clean(
    scenario: str, seed: int, tmp_path: Path
) -> None:
    outcome = run_seed(seed, SCENARIOS[scenario], tmp_path)
    assert outcome.violation is None, complaint(outcome)
