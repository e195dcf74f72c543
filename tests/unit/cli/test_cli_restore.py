"""`tidelog restore` writes what the job had, as a database or as decoded rows."""

import json
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from tests.support.cli import files, lay_out, restored_rows, tidelog
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
    options = ["--slot", "7", "--operator", "source", "--format", "jsonl", "--json"]
    result = tidelog("restore", store, "--to", to, *options)
    document = json.loads(result.stdout)
    assert (document["slot"], document["format"], document["to"]) == (7, "jsonl", str(to))
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
        assert name in result.stderr and "restore an older slot" in result.stderr
    assert not (tmp_path / "new").exists()
    assert files(tmp_path / "empty") == {} and (tmp_path / "empty").is_dir()
    assert files(store) == objects
