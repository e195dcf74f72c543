"""Durations and job names on the command line."""

import sys
from pathlib import Path

import click
import pytest

from tests.support.cli import tidelog
from tidelog.cli.run.process import load_job
from tidelog.cli.values import duration
from tidelog.errors import ConfigError, UserFunctionError
from tidelog.runtime.config import JobArguments
from tidelog.runtime.graph import Job

MODULE = """
from tidelog.runtime.graph import Job

job = Job("plain")
number = 3


def build():
    return Job("built")


def build_with(arguments):
    return Job(arguments.input)


def build_nothing():
    pass


def fail():
    raise RuntimeError("no luck")
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with modules in it that are forgotten afterwards."""
    (tmp_path / "my_job_module.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("1 s", 1.0), (".5s", 0.5), ("1.5m", 90.0), ("2h", 7200.0), ("1d", 86_400.0)],
)
def test_a_duration_is_a_number_with_a_unit(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "1", "s", "-1s", "0s", "1  s", "1w", "1e3s", "1s "])
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write 500ms"):
        duration(text)


def test_a_job_is_found_by_its_examples_name_or_in_a_module_here(here: Path) -> None:
    words = JobArguments(input="words.txt")
    for attribute, name in (("job", "plain"), ("build", "built"), ("build_with", "words.txt")):
        found = load_job(f"my_job_module:{attribute}", words)
        assert isinstance(found, Job) and found.name == name
    for example in ("wordcount", "sessions"):
        assert load_job(example, JobArguments(input=str(here))).name == example


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("my_job_module", "module:attribute"),
        (":job", "module:attribute"),
        ("my_job_module:", "module:attribute"),
        ("nowhere:job", "no module 'nowhere'"),
        ("my_job_module.sub:job", "no module 'my_job_module.sub'"),
        ("my_job_module:missing", "no 'missing' in it"),
        ("my_job_module:number", "found int"),
        ("my_job_module:build_nothing", "found NoneType"),
    ],
)
def test_what_is_no_job_is_refused_with_its_name(here: Path, name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_job(name, JobArguments())


def test_a_failure_in_the_users_code_is_the_users(here: Path) -> None:
    with pytest.raises(UserFunctionError, match="no luck"):
        load_job("my_job_module:fail", JobArguments())


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import not_installed_anywhere", "ModuleNotFoundError: No module named"),
        ("from tidelog import nothing_of_it", "ImportError: cannot import name"),
        ("import sys; sys.nothing_of_it", "AttributeError: module 'sys' has no"),
    ],
)
def test_a_module_that_cannot_be_imported_says_so_and_what_to_do(
    here: Path, code: str, found: str
) -> None:
    (here / "unimportable.py").write_text(f"{code}\n")
    ran = tidelog("run", "unimportable:job", "--store", "store")
    assert ran.exit_code == 1
    said = f"module unimportable; expected to be imported; found {found}"
    assert said in ran.stderr and "Next: fix the import and start again" in ran.stderr
    assert "checkpoint" not in ran.stderr
