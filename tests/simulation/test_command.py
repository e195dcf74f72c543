"""The simulator's command: what it prints, its exit codes, the command that repeats a run."""

import json

import pytest

from tests.simulation.canaries import commit_before_the_manifest_is_durable
from tests.support.cli import simulate


def test_clean_runs_are_counted_by_scenario() -> None:
    done = simulate("--seeds", "4", "--scenario", "calm", "--scenario", "store")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["calm", "2", "runs,", "0", "violations"]
    assert lines[1].split() == ["store", "2", "runs,", "0", "violations"]
    assert lines[2].startswith("4 seeds in ")
    assert lines[3] == "no violation"


def test_a_violation_is_shown_with_its_replay_and_ends_with_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commit_before_the_manifest_is_durable(monkeypatch)
    done = simulate("--seeds", "50", "--scenario", "calm", "--jobs", "1")
    assert done.exit_code == 1
    assert "property: commit-order" in done.stdout
    assert "replay: python -m tests.simulator --scenario calm --first-seed " in done.stdout
    assert "1 VIOLATION\n" in done.stdout
    replay = done.stdout.partition("replay: python -m tests.simulator ")[2]
    again = simulate(*replay.splitlines()[0].split())
    assert again.exit_code == 1
    assert "VIOLATION commit-order" in again.stdout


def test_every_violation_is_in_json_and_named_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    commit_before_the_manifest_is_durable(monkeypatch)
    six = ("--seeds", "6", "--scenario", "calm", "--jobs", "1", "--keep-going")
    done = simulate(*six, "--json")
    document = json.loads(done.stdout)
    assert done.exit_code == 1
    assert (document["first_seed"], document["seeds"], document["runs"]) == (0, 6, {"calm": 6})
    assert document["violations"][0]["property"] == "commit-order"
    assert document["violations"][0]["last_events"]
    lines = simulate(*six).stdout.splitlines()
    found = int(lines[-1].split()[0])
    assert found == len(document["violations"]) > 1
    replays = [line.partition(" python -m ")[2] for line in lines[-1 - found : -1]]
    assert len(set(replays)) == found
    assert all(
        replay.startswith("tests.simulator --scenario calm --first-seed") for replay in replays
    )


def test_the_scenarios_are_listed() -> None:
    listed = json.loads(simulate("--list", "--json").stdout)
    assert {"calm", "store", "crashes", "zombies", "everything", "rocksdb"} <= {
        scenario["name"] for scenario in listed
    }
    assert "zombies" in simulate("--list").stdout


def test_new_seeds_are_others_each_time_and_are_printed_first() -> None:
    new = ("--scenario", "calm", "--seeds", "2", "--new-seeds", "--jobs", "1")
    begun = [simulate(*new).stdout.splitlines()[0].split() for _ in range(2)]
    for seeds, first, to, last in begun:
        assert (seeds, to, int(last)) == ("seeds", "to", int(first) + 1)
    assert begun[0] != begun[1]


def test_the_first_seed_is_drawn_or_named() -> None:
    refused = simulate("--new-seeds", "--first-seed", "3")
    assert refused.exit_code == 2
    assert "--new-seeds draws the first seed, --first-seed names it: use one" in refused.stderr
