"""Where tables lie while a job runs: each user's own place, which stays where it is."""

import os
import tempfile
from pathlib import Path

import pytest

from tests.unit.library.conftest import opened
from tidelog import ConfigError, JobConfig
from tidelog.runtime.subtasks.resources import open_work_dir, remove_work_dir


def test_users_of_one_machine_are_not_in_each_others_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = []
    for user in (1, 2):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        made.append(open_work_dir(None, "memory://a"))
    assert made[0].relative_to(tmp_path).parts[0] != made[1].relative_to(tmp_path).parts[0]
    for directory in made:
        remove_work_dir(directory)


def test_a_program_that_changes_its_directory_keeps_its_tables_and_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    # Without the changelog each checkpoint writes files of the table.
    config = JobConfig(changelog=False, work_dir=Path("work"), local_recovery=Path("copies"))
    with opened("store", config) as db:
        monkeypatch.chdir(tmp_path / "elsewhere")
        db.key("a").total.set(1)
        db.checkpoint()
        db.key("a").total.set(2)
    monkeypatch.chdir(tmp_path)
    with opened("store", config) as db:
        assert db.key("a").total.get() == 2
    assert list((tmp_path / "work").glob("*/*")) == []
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_without_a_place_for_temporary_files_a_work_dir_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    monkeypatch.delenv("TIDELOG_CONTROL_DIR", raising=False)
    url = str(tmp_path / "store")
    with pytest.raises(ConfigError, match=r"option work_dir; .*No usable temporary directory"):
        opened(url)
    with opened(url, JobConfig(work_dir=tmp_path / "work")) as db:
        db.key("a").total.set(1)
