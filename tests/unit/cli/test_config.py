"""`tidelog config`, and `tidelog run` with options from files, environment and command line."""

import json
import re
from pathlib import Path

import pytest

from tests.support.cli import count_words, tidelog, undocumented
from tidelog.settings import OPTIONS, flag


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job.toml"
    path.write_text('retain = 7\nmaterialize.interval = "5 min"\n[upload]\nlinger = "20 ms"\n')
    return path


def test_show_names_where_each_setting_comes_from(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELOG__UPLOAD__LINGER", "30 ms")
    arguments = ["--config", file, "--materialize-interval", "10m", "--no-changelog"]
    shown = tidelog("config", "show", *arguments, "--json")
    assert shown.exit_code == 0, shown.output
    found = {each["name"]: each for each in json.loads(shown.stdout)}
    assert set(found) == set(OPTIONS)
    assert (found["retain"]["value"], found["retain"]["origin"]) == (7, str(file))
    assert found["upload.linger"]["text"] == "30 ms"
    assert found["upload.linger"]["origin"] == "environment variable TIDELOG__UPLOAD__LINGER"
    assert found["materialize.interval"]["value"] == 600
    assert found["materialize.interval"]["origin"] == "option --materialize-interval"
    assert found["changelog"]["value"] is False
    assert found["memory"]["origin"] == "default"
    assert undocumented(list(found.values())) == set()


def test_show_has_the_parallelism_that_workers_bring_about() -> None:
    shown = tidelog("config", "show", "--workers", "4", "--json")
    assert {each["name"]: each["value"] for each in json.loads(shown.stdout)}["parallelism"] == 4


def test_a_flag_of_names_takes_them_with_commas_and_again() -> None:
    flags = ["--allow-non-restored-state", "a, b", "--allow-non-restored-state", "c"]
    shown = tidelog("config", "show", "--changed", *flags, "--json")
    assert [each["value"] for each in json.loads(shown.stdout)] == [["a", "b", "c"]]


def test_check_lists_everything_that_is_wrong(file: Path) -> None:
    assert "3 options, nothing wrong" in tidelog("config", "check", file).stdout
    file.write_text('retian = 7\nmemory = "1 KiB"\n')
    assert tidelog("config", "check", file.with_name("none.toml")).exit_code == 2
    wrong = tidelog("config", "check", file)
    assert wrong.exit_code == 1
    assert "write retain, if that is meant" in wrong.stdout
    assert "option memory" in wrong.stdout and "from 32 MiB to 4 TiB; found 1 KiB" in wrong.stdout
    document = json.loads(tidelog("config", "check", file, "--json").stdout)
    assert [problem["type"] for problem in document["problems"]] == ["ConfigError"] * 2
    assert undocumented(document) == set()


def test_run_has_a_flag_for_every_option() -> None:
    help_ = tidelog("run", "--help-all").stdout
    assert [name for name, each in OPTIONS.items() if flag(each) not in help_] == []
    assert "Job: upload:" in help_


def test_run_takes_its_options_from_a_file(text: Path, tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text("key_groups = 300\n[upload]\ncompression_level = 0\n")
    done = count_words(text, "--config", file)
    assert done.exit_code == 0, done.output
    shown = tidelog("checkpoints", "show", tmp_path / "store", "latest", "--json")
    assert {each["key_groups"] for each in json.loads(shown.output)["operators"]} == {300}


def test_run_refuses_a_wrong_file_before_it_starts(text: Path, tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text("[materialise]\ninterval = 20\n")
    refused = count_words(text, "--config", file)
    assert refused.exit_code == 2
    assert "write materialize, if that is meant" in refused.output
    assert not (tmp_path / "store").exists()


def test_the_help_of_a_run_lists_what_most_runs_need_and_where_the_rest_is() -> None:
    short, whole = tidelog("run", "--help").stdout, tidelog("run", "--help-all").stdout
    assert "--checkpoint-interval" in short and "--rocksdb" not in short
    listed = [set(re.findall(r"^  (--[a-z-]+)", text, re.MULTILINE)) for text in (short, whole)]
    assert listed[0] < listed[1] and len(listed[0]) < 20
    assert re.search(r"^\d\d more options: tidelog run --help-all", short, re.MULTILINE)
