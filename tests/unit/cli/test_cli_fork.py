"""`tidelog fork` branches off, and says what it shared and what it copied."""

import json
from pathlib import Path

import pytest

from tests.support.cli import files, tidelog
from tests.support.jobs import filled

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
