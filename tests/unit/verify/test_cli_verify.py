"""`tidelog verify` on stores in directories: its table, its JSON, its exit code."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import CLI_JSON, files, lay_out, section, tidelog, undocumented
from tests.support.damage import damaged, last_segment, missing
from tests.support.jobs import filled
from tests.unit.spark.spark_home import fake_java
from tests.unit.verify.query.spark_store import SparkStore
from tests.unit.verify.stores import tiny, with_rows
from tidelog.checkpoint.invariants import Invariant
from tidelog.verify.results import CheckName


def verify(directory: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Exit code and document of a verification without Spark."""
    result = tidelog("verify", directory, "--engine", "local", "--json", *options)
    assert result.stderr == ""
    return result.exit_code, json.loads(result.stdout)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return lay_out(tmp_path / "store", filled())


def test_a_sound_store_passes_and_is_not_written_to(store: Path) -> None:
    code, document = verify(store)
    assert code == 0 and document["passed"] and document["problems"] == []
    assert document["layout"] == "tidelog" and document["engine"] == "local"
    found = {c["checkpoint"]: c["verdict"] for c in document["checkpoints"]}
    assert found == {7: "sound", 8: "sound", 9: "sound"}
    assert document["newest_sound"] == 9
    assert files(store) == filled()


def test_damage_is_shown_with_object_partition_checkpoints_and_what_still_works(
    tmp_path: Path,
) -> None:
    segment = last_segment(filled(), 7)
    hurt = lay_out(tmp_path, damaged(filled(), segment, missing))
    shown = tidelog("verify", hurt, "--engine", "local")
    assert shown.exit_code == 1
    assert f"{segment} (objects)" in shown.stdout
    assert "  partition: process-1, source-0, source-1" in shown.stdout
    assert "  makes unusable: checkpoint 7, 8, 9" in shown.stdout
    assert "  next: bring the object back from a backup; no other checkpoint" in shown.stdout
    assert "FAILED: 0 of 3 checkpoints are sound" in shown.stdout
    # Of a chosen one nothing is said of those that were not looked at.
    shown = tidelog("verify", hurt, "--engine", "local", "--checkpoint", "latest")
    assert shown.exit_code == 1 and "no other checkpoint is sound" not in shown.stdout
    assert (
        "  next: bring the object back from a backup, or look for a sound checkpoint among the "
        f"others: `tidelog verify {hurt}`, without --checkpoint"
        in shown.stdout.replace("file://", "")
    )


def test_a_checkpoint_of_a_query_is_known_by_what_lies_there(tmp_path: Path) -> None:
    query = SparkStore(tmp_path / "rocksdb").batches(4).snapshot().batches(2)
    directory = lay_out(tmp_path / "query", query.objects)
    code, document = verify(directory)
    assert code == 0 and document["layout"] == "spark"
    assert [c["checkpoint"] for c in document["checkpoints"]] == [0, 1, 2, 3, 4, 5]
    shown = tidelog("verify", f"file:{directory}", "--engine", "local").stdout
    assert shown.startswith("batch  verdict")


def test_every_field_and_check_is_documented(tmp_path: Path) -> None:
    contradicted = with_rows(tiny(), "materializations/00000000/count-1-2.json", lambda r: r[1:])
    directory = lay_out(tmp_path / "store", contradicted)
    _, document = verify(directory, "--checkpoint", "6")
    assert document["problems"] and document["not_checked"]
    assert undocumented(document, section("verify")) == set()
    checks = (*CheckName, Invariant.READABLE, Invariant.OBJECTS)
    assert {check for check in checks if f"| `{check}` |" not in CLI_JSON} == set()
    for verdict in ("sound", "doubtful", "unusable", "expired", "gone"):
        assert f"`{verdict}`" in section("verify")


def test_a_number_of_processes_is_for_the_local_engine_alone(store: Path) -> None:
    result = tidelog("verify", store, "--engine", "spark", "--jobs", "2")
    assert result.exit_code == 2 and "add --engine local" in result.stderr


@pytest.mark.parametrize("why", ["pip install", "by SPARK_REMOTE=sc://server"])
def test_without_pyspark_or_a_session_of_its_own_the_error_says_what_else_works(
    store: Path, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "pip install":
        monkeypatch.setitem(sys.modules, "pyspark", None)
        monkeypatch.delenv("SPARK_HOME", raising=False)
        assert json.loads(tidelog("verify", store, "--json").stdout)["engine"] == "local"
    else:
        monkeypatch.setenv("SPARK_REMOTE", "sc://server")
    result = tidelog("verify", store, "--engine", "spark")
    assert result.exit_code == 2 and why in result.stderr
    assert "--engine local" in result.stderr


def test_where_spark_does_not_start_the_error_says_what_else_works(
    store: Path, tmp_path: Path
) -> None:
    fake_java(tmp_path, "exit 1")
    command = [sys.executable, "-m", "tidelog", "verify", str(store), "--engine", "spark"]
    environment = {**os.environ, "JAVA_HOME": str(tmp_path)}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 2 and "JAVA_GATEWAY_EXITED" in result.stderr
    assert "the Spark session of `tidelog verify`" in result.stderr
    assert "--engine local" in result.stderr
