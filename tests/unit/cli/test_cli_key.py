"""`tidelog key` makes keys that nobody else can read, and changes those of stores."""

import json
import stat
from pathlib import Path

import pytest

from tests.support.cli import files, lay_out, tidelog
from tests.support.jobs import filled
from tests.unit.storage.encryption.test_sealed import EFFECTS, FIRST, SECOND, key_file
from tests.unit.verify.stores import with_objects
from tidelog import open_store


@pytest.fixture
def key(tmp_path: Path) -> str:
    return key_file(tmp_path / "old.key", FIRST)


@pytest.fixture
def store(tmp_path: Path, key: str) -> Path:
    with_objects(open_store(str(tmp_path / "store"), effects=EFFECTS, encryption_key=key), filled())
    return tmp_path / "store"


def test_a_new_key_is_its_owners_alone_and_unlike_any_other(tmp_path: Path) -> None:
    made = [tmp_path / "one", tmp_path / "two"]
    for path in made:
        fields = json.loads(tidelog("key", "new", path, "--json").stdout)
        assert fields["file"] == str(path) and fields["key"] in path.read_text()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    first = made[0].read_text()
    assert first != made[1].read_text()
    again = tidelog("key", "new", made[0])
    assert again.exit_code == 2 and "a key is never overwritten" in again.stderr
    assert made[0].read_text() == first
    assert tidelog("inspect", tmp_path / "empty", "--encryption-key", made[0]).exit_code != 2


def test_a_rotation_changes_the_keys_and_no_object(tmp_path: Path, store: Path, key: str) -> None:
    new, before = key_file(tmp_path / "new.key", SECOND), files(store)
    result = tidelog("key", "rotate", store, "--encryption-key", key, "--new-key", new, "--json")
    assert json.loads(result.stdout) == {"url": store.as_uri(), "keys": 2}
    after = files(store)
    assert {name for name in before | after if before.get(name) != after.get(name)} == {
        "keys/00000001.json",
        "keys/00000002.json",
    }
    assert tidelog("inspect", store, "--deep", "--encryption-key", new).exit_code == 0
    assert tidelog("inspect", store, "--encryption-key", key).exit_code == 2


def test_the_word_for_no_key_is_that_of_the_jobs_option(tmp_path: Path) -> None:
    plain = lay_out(tmp_path / "plain", filled())
    no_key = {"TIDELOG__ENCRYPTION_KEY": "not encrypted"}
    assert tidelog("inspect", plain, env=no_key).exit_code == 0


def test_a_rotation_needs_the_key_that_opens_the_store(
    tmp_path: Path, store: Path, key: str
) -> None:
    new, before = key_file(tmp_path / "new.key", SECOND), files(store)
    rotate = ("key", "rotate", store, "--new-key")
    assert "where the key is that the store has now" in tidelog(*rotate, new).stderr
    assert "found another key" in tidelog(*rotate, key, "--encryption-key", new).stderr
    assert files(store) == before
    plain = lay_out(tmp_path / "plain", filled())
    refused = tidelog("key", "rotate", plain, "--new-key", new, "--encryption-key", key)
    assert refused.exit_code == 2 and "not encrypted" in refused.stderr
    unsafe = tidelog("store", "check", store, "--encryption-key", new)
    assert unsafe.exit_code == 1 and "found another key" in unsafe.stdout
