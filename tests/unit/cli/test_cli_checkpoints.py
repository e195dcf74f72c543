"""`tidelog restore` writes what the job had, as a database or as decoded rows.

`tidelog checkpoints` shows every slot and what a checkpoint holds.

`tidelog clone` branches off, and says what it shared and what it copied.
"""

import json
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from tests.support.cli import files, lay_out, restored_rows, tidelog, undocumented
from tests.support.damage import (
    Damage,
    a_table_file,
    checkpoint_in,
    damaged,
    flipped,
    last_segment,
    missing,
    truncated,
)
from tests.support.jobs import WORDS, config, contents, every_kind, filled, restarted, word_count


@pytest.mark.parametrize("table", ["memory", "rocksdb"])
def test_rows_are_what_the_job_counted(table: str, tmp_path: Path) -> None:
    store = lay_out(tmp_path / "store", contents(restarted(word_count, config(table=table))))
    result = tidelog("restore", store, "--to", tmp_path / "to", "--format", "jsonl")
    assert result.exit_code == 0
    rows = [row for row in restored_rows(tmp_path / "to") if row["operator"] == "count"]
    # Both splits hold all words.
    wanted = {word: 2 * WORDS.count(word) for word in WORDS}
    assert {row["key"]: row["value"] for row in rows} == wanted
    assert {row["subtask"] for row in rows} == {0, 1}


def test_a_dry_run_says_what_a_start_would_read_and_writes_nothing(
    store: Path, tmp_path: Path
) -> None:
    before = files(store)
    result = tidelog("restore", store, "--dry-run", "--json")
    told = json.loads(result.stdout)
    assert result.exit_code == 0 and files(store) == before
    assert undocumented(told) == set()
    assert told["reads"]["files"]["bytes"] > 0 or told["reads"]["changes"] > 0
    assert told["first_record_s"] > 0
    assert "begin at-once: first record after" in tidelog("restore", store, "--dry-run").stdout
    for options in ((), ("--dry-run", "--to", tmp_path / "to")):
        refused = tidelog("restore", store, *options)
        assert refused.exit_code == 2 and "--dry-run" in refused.stderr
    assert not (tmp_path / "to").exists()


def test_a_checkpoint_that_the_store_does_not_have_is_wrong_usage(
    store: Path, tmp_path: Path
) -> None:
    words, other = tmp_path / "words", tmp_path / "other"
    words.mkdir()
    run = ("run", "wordcount", "--input", words, "--output", tmp_path / "out", "--store")
    for unknown in ("99", "late", "0"):  # 0 is the start of the job
        for command in (
            ("checkpoints", "show", store, unknown),
            ("clone", f"{store}@{unknown}", other),
            ("log", store, "--checkpoint", unknown),
            ("restore", store, "--checkpoint", unknown, "--to", other),
            ("restore", store, "--checkpoint", unknown, "--dry-run"),
            ("verify", store, "--checkpoint", unknown, "--engine", "local"),
            (*run, store, "--from", f"@{unknown}"),
            (*run, other, "--from", f"{store}@{unknown}"),
            *([] if unknown == "late" else [(*run, store, "--restore-checkpoint", unknown)]),
        ):
            refused = tidelog(*command)
            assert refused.exit_code == 2, (command, refused.output)
            assert "; expected one of 7 to 9; found none of that number" in refused.stderr
        dropped = tidelog("checkpoints", "drop", store, unknown)
        assert dropped.exit_code == 2 and "those in the store, of which" in dropped.stderr
    assert tidelog("checkpoints", "drop", store, "9").exit_code == 2, "no savepoint"
    assert not other.exists()


def test_every_kind_of_state_is_decoded(store: Path, tmp_path: Path) -> None:
    assert tidelog("restore", store, "--to", tmp_path / "to", "--format", "jsonl").exit_code == 0
    rows = restored_rows(tmp_path / "to")
    assert {row["encoding"] for row in rows} == {"decoded"}
    of_word = {row["state"]: row for row in rows if row["key"] == "word-7"}
    assert of_word["count"]["value"] == {"count": 20}
    assert of_word["letters"]["entry"] == {"letter": "w"}
    assert of_word["$timers-by-key"]["entry"] == 1_900_000_000_000
    assert of_word["seen"]["expires_ms"] > 0
    elements = [
        element
        for row in rows
        if (row["key"], row["state"]) == ("word-7", "history")
        for element in row["value"]
    ]
    assert elements == [{"length": 6, "word": "word-7"}] * 20


@pytest.mark.parametrize("table", ["memory", "rocksdb"])
def test_a_database_holds_the_rows_that_are_decoded(table: str, tmp_path: Path) -> None:
    store = lay_out(tmp_path / "store", contents(restarted(every_kind, config(table=table))))
    assert tidelog("restore", store, "--to", tmp_path / "db").exit_code == 0
    assert tidelog("restore", store, "--to", tmp_path / "to", "--format", "jsonl").exit_code == 0
    assert sorted(path.name for path in (tmp_path / "db").iterdir()) == [
        *("process-0", "process-1", "source-0", "source-1")
    ]
    for path in (tmp_path / "db").iterdir():
        database = Rdict(str(path), Options(raw_mode=True))
        count = sum(1 for _ in database.keys())  # noqa: SIM118  # no plain iterator
        database.close()
        lines = (tmp_path / "to" / f"{path.name}.jsonl").read_text().splitlines()
        assert count == len(lines) > 0


def test_an_older_slot_and_one_operator_can_be_chosen(store: Path, tmp_path: Path) -> None:
    to = tmp_path / "to"
    options = ["--checkpoint", "7", "--operator", "source", "--format", "jsonl", "--json"]
    result = tidelog("restore", store, "--to", to, *options)
    document = json.loads(result.stdout)
    assert (document["checkpoint"], document["format"], document["to"]) == (7, "jsonl", str(to))
    source = checkpoint_in(filled(), 7).operators[0]
    assert document["subtasks"] == [
        {
            "operator": "source",
            "subtask": state.index,
            "changes": state.seqno,
            "rows": 1,
            "path": f"source-{state.index}.jsonl",
        }
        for state in source.subtasks
    ]
    assert {row["key"] for row in restored_rows(to)} == {"left", "right"}


def test_a_target_that_is_not_empty_is_refused_and_left_alone(store: Path, tmp_path: Path) -> None:
    target = lay_out(tmp_path / "to", {"precious": b"data"})
    result = tidelog("restore", store, "--to", target)
    assert result.exit_code == 2
    assert "choose another --to" in result.stderr
    assert files(target) == {"precious": b"data"}
    for unusable in ("precious", "precious/below", 300 * "x"):
        refused = tidelog("restore", store, "--to", target / unusable)
        assert refused.exit_code == 2
        assert "choose another --to" in refused.stderr
    assert files(target) == {"precious": b"data"}


@pytest.mark.parametrize("output_format", ["rocksdb", "jsonl"])
@pytest.mark.parametrize("damage", [truncated, flipped, missing])
@pytest.mark.parametrize("victim", ["segment", "table file"])
def test_damage_is_named_and_leaves_nothing_behind(
    victim: str, damage: Damage, output_format: str, tmp_path: Path
) -> None:
    name = last_segment(filled(), 9) if victim == "segment" else a_table_file(filled(), 9)
    objects = damaged(filled(), name, damage)
    store = lay_out(tmp_path / "store", objects)
    (tmp_path / "empty").mkdir()
    for target in (tmp_path / "new", tmp_path / "empty"):
        result = tidelog("restore", store, "--to", target, "--format", output_format)
        assert result.exit_code == 1
        assert name in result.stderr and "restore an older checkpoint" in result.stderr
    assert not (tmp_path / "new").exists()
    assert files(tmp_path / "empty") == {} and (tmp_path / "empty").is_dir()
    assert files(store) == objects


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
    newest = document["checkpoints"][-1]
    checkpoint = checkpoint_in(filled(), 9)
    states = [state for _, state in checkpoint.subtasks()]
    assert newest == {
        "checkpoint": 9,
        "kind": "checkpoint",
        "generation": 4,
        "attempt": checkpoint.checkpoint_id,
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
    start = document["checkpoints"][0]
    assert (start["kind"], start["log_bytes"], start["final"]) == ("start", None, None)


def test_list_goes_on_behind_a_damaged_slot(tmp_path: Path) -> None:
    lay_out(tmp_path, damaged(filled(), "checkpoints/00000008.json", flipped))
    result = tidelog("checkpoints", "list", tmp_path, "--json")
    assert result.exit_code == 1
    kinds = [(row["checkpoint"], row["kind"]) for row in json.loads(result.stdout)["checkpoints"]]
    assert kinds[1:] == [(7, "checkpoint"), (8, "unreadable"), (9, "checkpoint")]
    error = json.loads(result.stdout)["checkpoints"][2]["error"]
    assert "checkpoints/00000008.json" in error["what"] and error["action"]


def test_show_says_what_a_restore_would_replay_by_operator_and_subtask(store: Path) -> None:
    shown = tidelog("checkpoints", "show", store).stdout
    assert "checkpoint 9 of job" in shown and "final" in shown
    assert "state 5 letters: map (letter string; times int, share double)" in shown
    assert "operator source, 16 key groups" in shown
    document = json.loads(tidelog("checkpoints", "show", store, "8", "--json").stdout)
    assert document["checkpoint"] == 8
    entry = checkpoint_in(filled(), 8)
    for operator, wanted in zip(document["operators"], entry.operators, strict=True):
        assert operator["id"] == wanted.id
        for shown, state in zip(operator["subtasks"], wanted.subtasks, strict=True):
            upto = state.materialization.upto if state.materialization else 0
            assert shown["seqno"] == state.seqno
            assert shown["materialized_upto"] == upto
            assert shown["replay_changes"] == state.seqno - upto
            assert shown["log_ranges"] == len(state.log)
