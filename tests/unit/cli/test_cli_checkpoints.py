"""`tidelog checkpoints` shows every slot and what a checkpoint holds.

`tidelog fork` branches off, and says what it shared and what it copied.
"""

import json
from pathlib import Path

import pytest

from tests.support import pipelines
from tests.support.cli import files, lay_out, tidelog
from tests.support.damage import checkpoint_in, damaged, flipped
from tests.support.jobs import config, contents, filled, run, word_count
from tests.support.pipelines import Outside
from tests.support.pressure import checkpoints
from tests.unit.runtime.ending.jobs import long, merged, settings, uneven
from tests.unit.runtime.ending.jobs import operator as operator_of
from tidelog.changelog.upload_config import UploadConfig
from tidelog.checkpoint.finished import fully_finished, partially_finished
from tidelog.storage.memory import MemoryStore


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


def test_an_inline_tail_is_counted(tmp_path: Path) -> None:
    memory = MemoryStore()
    run(memory, word_count(), config(upload=UploadConfig(inline_bytes=50_000)))
    lay_out(tmp_path, contents(memory))
    document = json.loads(tidelog("checkpoints", "list", tmp_path, "--json").stdout)
    assert document["slots"][-1]["inline_bytes"] > 0


@pytest.mark.parametrize(("slot", "found"), [("77", "no such slot"), ("4", "start")])
def test_show_refuses_what_is_no_checkpoint(store: Path, slot: str, found: str) -> None:
    result = tidelog("checkpoints", "show", store, slot)
    assert result.exit_code == 1
    assert found in result.stderr and "checkpoints list" in result.stderr


def test_show_names_what_has_finished(tmp_path: Path) -> None:
    objects = MemoryStore("memory://ending")
    merging = merged(uneven(4), long(4, 60), Outside())
    pipelines.run(merging, objects, settings(parallelism=3))
    taken = {c.slot: operator_of(c, "left") for c in checkpoints(objects)}
    partial = next(slot for slot, left in taken.items() if partially_finished(left))
    whole = next(slot for slot, left in taken.items() if fully_finished(left))
    store = lay_out(tmp_path, contents(objects))

    done = [str(s.index) for s in taken[partial].subtasks if s.finished]
    shown = tidelog("checkpoints", "show", store, str(partial)).stdout
    assert f"operator left, 8 key groups, finished in part: subtask {', '.join(done)}\n" in shown
    shown = tidelog("checkpoints", "show", store, str(whole)).stdout
    assert "operator left, 8 key groups, finished\n" in shown
    assert "operator aggregate, 8 key groups\n" in shown
    shown = tidelog("checkpoints", "show", store).stdout
    assert "operator aggregate, 8 key groups, finished, and sink\n" in shown

    document = json.loads(tidelog("checkpoints", "show", store, "--json").stdout)
    chains = {each["id"]: (each["finished"], each["chain"]) for each in document["operators"]}
    assert chains["aggregate"] == (True, ["sink"]) and chains["left"] == (True, [])


DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "cli-json.md"


def test_a_fork_is_a_sound_store_of_its_own(store: Path, tmp_path: Path) -> None:
    result = tidelog("fork", f"{store}@8", tmp_path / "fork")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"slot 8 of {store} is the beginning of file://")
    assert tidelog("inspect", tmp_path / "fork", "--deep").exit_code == 0
    assert "checkpoints/00000008.json" in files(tmp_path / "fork")
    assert files(store) == dict(filled())


@pytest.mark.parametrize(("options", "shared"), [([], True), (["--copy"], False)])
def test_json_says_what_is_shared(
    store: Path, tmp_path: Path, options: list[str], shared: bool
) -> None:
    target = tmp_path / "fork"
    fields = json.loads(tidelog("fork", f"{store}@latest", target, "--json", *options).stdout)
    number = len([name for name in files(target) if not name.startswith("checkpoints/")])
    assert (fields["slot"], fields["origin"]) == (9, store.as_uri())
    assert (fields["shared"], fields["copied"]) == ((number, 0) if shared else (0, number))
    section = DOCUMENT.read_text().partition("## tidelog fork")[2].partition("\n## ")[0]
    assert {key for key in fields if f"`{key}`" not in section} == set()


@pytest.mark.parametrize("origin_text", ["store", "store@", "@7", "store@a/b"])
def test_an_origin_without_a_checkpoint_is_wrong_usage(origin_text: str, tmp_path: Path) -> None:
    result = tidelog("fork", origin_text, tmp_path / "fork")
    assert result.exit_code == 2
    assert "URL@SLOT" in result.stderr
    assert not (tmp_path / "fork").exists()


def test_a_store_in_use_is_refused_and_stays_as_it_is(store: Path) -> None:
    result = tidelog("fork", f"{store}@8", store)
    assert result.exit_code == 2
    assert "expected an empty store" in result.stderr
    assert files(store) == dict(filled())


def test_a_slot_that_is_not_there_is_an_error(store: Path, tmp_path: Path) -> None:
    result = tidelog("fork", f"{store}@6", tmp_path / "fork", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stderr or result.stdout)["error"]["what"].startswith("slot 6 of store")
