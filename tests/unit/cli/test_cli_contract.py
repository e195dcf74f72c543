"""What all commands promise: exit codes, errors without tracebacks, a --help.

docs/reference/cli-json.md is complete: no command prints a field it does not name.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_args, get_type_hints

import click
import pytest
from click.testing import Result

from tests.support.cli import CLI_JSON, files, keys, lay_out, tidelog, undocumented
from tests.support.damage import Damage, damaged, flipped, of_a_newer_release, truncated
from tests.support.jobs import filled
from tidelog.checkpoint.invariants import Invariant
from tidelog.cli import main
from tidelog.metrics import METRIC
from tidelog.runtime.status.series import SERIES
from tidelog.runtime.status.status import JobStatus

STORE_COMMANDS = {
    "checkpoints list": (),
    "checkpoints show": (),
    "store check": (),
    "inspect": (),
    "log": (),
    "overhead": ("--engine", "local"),
    "report": ("--output", os.devnull),
    "restore": ("--to", "target"),
    "gc": (),
    "verify": ("--engine", "local"),
}
"""Options that they need, by command."""
READERS = [command for command in STORE_COMMANDS if command != "store check"]


def read(command: str, store: Path) -> Result:
    return tidelog(*command.split(), store, *STORE_COMMANDS[command])


def test_help_names_every_command_as_its_module_does() -> None:
    assert tidelog("--version").stdout == "tidelog 0.1.0\n"
    shown = tidelog("--help").stdout
    context = click.Context(main)
    for name in main.list_commands(context):
        assert f"  {name} " in shown
        command = main.get_command(context, name)
        assert command is not None and command.name == name


@pytest.mark.parametrize("command", STORE_COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    help_ = tidelog(*command.split(), "--help")
    assert help_.exit_code == 0
    for option in ("--json", "--endpoint", "--debug"):
        assert option in help_.stdout


RESTORE = ("restore", "x", "--to", "y", "--checkpoint")
WRONG = [("nonsense",), ("inspect",), ("log", "x", "--limit", "0"), ("ui", "x", "--port", "65536")]
WRONG += [(*RESTORE, slot) for slot in ("", "a checkpoint", "7/8")]


@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_wrong_usage_exits_with_2(arguments: tuple[str, ...]) -> None:
    refused = tidelog(*arguments)
    assert refused.exit_code == 2
    assert arguments[0] != "restore" or "'latest'" in refused.stderr


def test_a_wrong_option_exits_with_2_and_names_the_action(tmp_path: Path) -> None:
    result = tidelog("inspect", tmp_path, "--endpoint", "http://localhost:1")
    assert result.exit_code == 2
    assert "Next: remove them" in result.stderr


@pytest.mark.parametrize("command", READERS)
def test_a_url_without_a_job_is_an_error(command: str, tmp_path: Path) -> None:
    result = read(command, tmp_path / "typo")
    assert result.exit_code == 1
    assert "Next: check the URL" in result.stderr
    assert result.stdout == ""
    assert not (tmp_path / "typo").exists()


def test_an_error_is_a_message_or_its_parts_and_a_traceback_only_if_asked_for(
    tmp_path: Path,
) -> None:
    quiet = tidelog("inspect", tmp_path)
    assert "Traceback" not in quiet.stderr
    loud = tidelog("inspect", tmp_path, "--debug")
    assert "Traceback" in loud.stderr and quiet.stderr in loud.stderr
    result = tidelog("log", tmp_path, "--json")
    error = json.loads(result.stderr)["error"]
    assert error["type"] == "ObjectNotFoundError"
    assert set(error) == {"type", "what", "expected", "found", "action", "retry_safe"}
    assert result.stdout == ""


NEWEST = "checkpoints/00000009.json"


@pytest.mark.parametrize("damage", [truncated, flipped, of_a_newer_release])
@pytest.mark.parametrize("command", READERS)
def test_a_damaged_manifest_is_named_with_what_to_do(
    command: str, damage: Damage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    objects = damaged(filled(), NEWEST, damage)
    store = lay_out(tmp_path / "store", objects)
    result = read(command, store)
    assert result.exit_code == 1
    assert NEWEST in result.output
    assert "next: " in result.output.lower()
    if damage is of_a_newer_release:
        assert "use the tidelog release that wrote it" in result.output or command == "gc"
    assert files(store) == objects
    assert not (tmp_path / "target").exists()


USER_FIELDS = {"letter", "times", "share", "count", "at", "length", "word"}


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("checkpoints list", []),
        ("checkpoints show", ["7"]),
        ("inspect", ["--deep"]),
        ("log", ["--checkpoint", "7"]),
        ("gc", []),
        ("store check", []),
        ("restore", ["--checkpoint", "7", "--to", "to"]),
    ],
)
def test_every_field_is_documented(
    command: str, options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    hurt = damaged(filled(), "checkpoints/00000008.json", flipped)
    # `gc` prints nothing but an error for a damaged store.
    store = lay_out(tmp_path / "store", filled() if command == "gc" else hurt)
    result = tidelog(*command.split(), store, *options, "--json")
    lines = result.stdout.splitlines() if command == "log" else [result.stdout]
    found = list(map(json.loads, lines))
    assert set(keys(found)) - USER_FIELDS
    assert undocumented(found) - USER_FIELDS == set()


def fields_without_a_series(kind: type) -> Iterator[str]:
    """The fields of a dataclass and of those within that docs/reference/metrics.md has not."""
    hints = get_type_hints(kind)
    for each in fields(kind):  # type: ignore[arg-type]
        inner = [p for p in (hints[each.name], *get_args(hints[each.name])) if is_dataclass(p)]
        if METRIC not in each.metadata:
            yield from [each.name, *fields_without_a_series(inner[0])] if inner else [each.name]


def test_every_field_of_a_status_is_documented() -> None:
    run = CLI_JSON[CLI_JSON.index("## tidelog run") :]
    found = set(fields_without_a_series(JobStatus)) - {"at_s"}
    rooms = {series.room for series in SERIES}
    assert {"last_failure", "aligned_edges", "dropped_state", "subtask"} <= found
    named = set(re.findall(r"`[a-z_.]*?([a-z_]+)`", run)) | rooms
    assert found - named == set()


def test_every_invariant_is_documented() -> None:
    for invariant in Invariant:
        assert f"| `{invariant}` |" in CLI_JSON
