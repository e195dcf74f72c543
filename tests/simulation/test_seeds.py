"""Simulated runs: every scenario, hundreds of seeds, no violation."""

from pathlib import Path

import pytest

from tidelog.simulate.campaign import Campaign, replay, run_campaign
from tidelog.simulate.run import Outcome, run_seed
from tidelog.simulate.scenario import SCENARIOS

CHUNKS, CHUNK = 20, 26
FAST = [scenario for scenario in SCENARIOS.values() if not scenario.rocksdb]


def complaint(outcome: Outcome) -> str:
    events = "\n".join(outcome.last_events)
    return f"{outcome.violation}\n{outcome.plan}\n{events}\nreplay: {replay(outcome)}"


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_seed_violates_a_property(chunk: int) -> None:
    for outcome in run_campaign(Campaign(FAST, chunk * CHUNK, CHUNK)):
        assert outcome.violation is None, complaint(outcome)


def test_rocksdb_tables_keep_the_same_properties() -> None:
    for outcome in run_campaign(Campaign([SCENARIOS["rocksdb"]], 0, 4)):
        assert outcome.violation is None, complaint(outcome)


@pytest.mark.parametrize(
    ("scenario", "seed"),
    [
        ("store", 18),  # with one upload at a time, one that ended did not start the next
        ("crashes", 70),  # a coordinator asked at its own deadline decided nothing, for ever
        ("zombies", 116),  # a zombie won the slot that its successor had dropped
        ("zombies", 138),  # a slot was dropped between the refusal and the look at its holder
        ("zombies", 282),  # a start won a slot below those of the job that ran
        ("zombies", 299),  # and the zombie committed what another had read again
    ],
)
def test_a_seed_that_once_found_a_defect_stays_clean(
    scenario: str, seed: int, tmp_path: Path
) -> None:
    outcome = run_seed(seed, SCENARIOS[scenario], tmp_path)
    assert outcome.violation is None, complaint(outcome)
