"""`tidelog run --key-groups`: fixed by the first checkpoint, and a bound of the parallelism."""

import json
from pathlib import Path

import pytest
from click.testing import Result

from tests.support.cli import files, tidelog


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("low tide high tide\n")
    return tmp_path / "text"


def run(text: Path, *options: str) -> Result:
    place = text.parent
    arguments = ["--input", text, "--store", place / "store", "--output", place / "out"]
    return tidelog("run", "wordcount", *arguments, "--table", "memory", *options)


def test_a_job_has_as_many_key_groups_as_it_is_told_at_its_first_start(text: Path) -> None:
    done = run(text, "--key-groups", "300", "--parallelism", "2")
    assert done.exit_code == 0, done.output
    shown = json.loads(
        tidelog("checkpoints", "show", text.parent / "store", "latest", "--json").output
    )
    assert {operator["key_groups"] for operator in shown["operators"]} == {300}


def test_a_parallelism_above_the_key_groups_says_which_option_to_set(text: Path) -> None:
    refused = run(text, "--parallelism", "129")
    assert refused.exit_code == 2
    assert "expected a number from 1 to 128, the number of key groups; found 129" in refused.output
    assert "--key-groups" in refused.output and "129 or more" in refused.output
    assert not (text.parent / "store").exists() or not files(text.parent / "store")


def test_what_a_checkpoint_has_fixed_is_told_before_the_running_job_is_fenced(text: Path) -> None:
    assert run(text, "--key-groups", "2").exit_code == 0
    before = files(text.parent / "store")
    refused = run(text, "--key-groups", "4", "--parallelism", "3")
    assert refused.exit_code == 1
    assert "key groups of 'source'" in refused.output
    assert "set --key-groups 2" in refused.output
    assert files(text.parent / "store") == before
