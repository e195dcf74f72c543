"""`tidelog checkpoints` shows every slot and what a checkpoint holds.

`tidelog fork` branches off, and says what it shared and what it copied.
"""

import json
from pathlib import Path

from tests.support.cli import lay_out, tidelog
from tests.support.damage import checkpoint_in, damaged, flipped
from tests.support.jobs import filled


def test_list_shows_the_newest_start_and_every_checkpoint_in_order(store: Path) -> None:
    lines = tidelog("checkpoints", "list", store).stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [
        ["4", "start"],
        ["7", "checkpoint"],
        ["8", "checkpoint"],
        ["9", "checkpoint"],
    ]
    assert [line.endswith("final") for line in lines[1:]] == [False] * 3 + [True]


def test_list_as_json_counts_bytes(store: Path) -> None:
    document = json.loads(tidelog("checkpoints", "list", store, "--json").stdout)
    assert document["url"] == store.as_uri()
    newest = document["slots"][-1]
    checkpoint = checkpoint_in(filled(), 9)
    states = [state for _, state in checkpoint.subtasks()]
    assert newest == {
        "slot": 9,
        "kind": "checkpoint",
        "generation": 4,
        "checkpoint_id": checkpoint.checkpoint_id,
        "created_ms": checkpoint.created_ms,
        "job": "every-kind",
        "manifest_bytes": len(filled()["checkpoints/00000009.json"]),
        "log_bytes": sum(part.length for state in states for part in state.log),
        "materialized_bytes": sum(
            s.materialization.table_bytes for s in states if s.materialization is not None
        ),
        "inline_bytes": 0,
        "in_flight_bytes": 0,
        "unaligned": False,
        "final": True,
        "name": None,
        "savepoint_format": None,
        "error": None,
    }
    assert newest["log_bytes"] > 0 and newest["materialized_bytes"] > 0
    start = document["slots"][0]
    assert (start["kind"], start["log_bytes"], start["final"]) == ("start", None, None)


def test_list_goes_on_behind_a_damaged_slot(tmp_path: Path) -> None:
    lay_out(tmp_path, damaged(filled(), "checkpoints/00000008.json", flipped))
    result = tidelog("checkpoints", "list", tmp_path, "--json")
    assert result.exit_code == 1
    kinds = [(row["slot"], row["kind"]) for row in json.loads(result.stdout)["slots"]]
    assert kinds[1:] == [(7, "checkpoint"), (8, "unreadable"), (9, "checkpoint")]
    error = json.loads(result.stdout)["slots"][2]["error"]
    assert "checkpoints/00000008.json" in error["what"] and error["action"]


def test_show_says_what_a_restore_would_replay_by_operator_and_subtask(store: Path) -> None:
    shown = tidelog("checkpoints", "show", store).stdout
    assert "slot 9: checkpoint" in shown and "final" in shown
    assert "state 5 letters: map (letter string; times int, share double)" in shown
    assert "operator source, 16 key groups" in shown
    document = json.loads(tidelog("checkpoints", "show", store, "8", "--json").stdout)
    assert document["slot"] == 8
    entry = checkpoint_in(filled(), 8)
    for operator, wanted in zip(document["operators"], entry.operators, strict=True):
        assert operator["id"] == wanted.id
        for shown, state in zip(operator["subtasks"], wanted.subtasks, strict=True):
            upto = state.materialization.upto if state.materialization else 0
            assert shown["seqno"] == state.seqno
            assert shown["materialized_upto"] == upto
            assert shown["replay_changes"] == state.seqno - upto
            assert shown["log_ranges"] == len(state.log)


def test_a_slot_that_is_not_there_is_an_error(store: Path, tmp_path: Path) -> None:
    result = tidelog("fork", f"{store}@6", tmp_path / "fork", "--json")
    assert result.exit_code == 1
    error = json.loads(result.stderr or result.stdout)["error"]
    assert error["what"].startswith("slot 6 of store") and error["expected"].endswith("7 to 9")
