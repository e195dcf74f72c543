"""Simulated runs: every scenario, hundreds of seeds, no violation."""

import pytest

from tidelog.simulate.campaign import Campaign, replay, run_campaign
from tidelog.simulate.run import Outcome
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
