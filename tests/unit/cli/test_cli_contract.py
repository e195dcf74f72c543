"""What all commands promise: exit codes, errors without tracebacks, a --help."""

import json
import os
from pathlib import Path

import click
import pytest

from tests.support.cli import files, lay_out, tidelog
from tests.support.damage import damaged, flipped, of_a_newer_release, truncated
from tests.support.jobs import filled
from tidelog.cli import main

STORE_COMMANDS = [
    ("checkpoints", "list"),
    ("checkpoints", "show"),
    ("doctor",),
    ("inspect",),
    ("log",),
    ("overhead", "--engine", "local"),
    ("report", "--output", os.devnull),
    ("restore", "--to", "unused"),
    ("sweep",),
    ("verify", "--engine", "local"),
]
READERS = [c for c in STORE_COMMANDS if c[0] != "doctor"]


def test_help_names_every_command_as_its_module_does() -> None:
    assert tidelog("--version").stdout == "tidelog 0.1.0\n"
    shown = tidelog("--help").stdout
    context = click.Context(main)
    for name in main.list_commands(context):
        assert f"  {name} " in shown
        command = main.get_command(context, name)
        assert command is not None and command.name == name


@pytest.mark.parametrize("command", STORE_COMMANDS, ids=" ".join)
def test_every_command_explains_itself(command: tuple[str, ...]) -> None:
    help_ = tidelog(*command, "--help")
    assert help_.exit_code == 0
    for option in ("--json", "--endpoint", "--debug"):
        assert option in help_.stdout


RESTORE = ("restore", "x", "--to", "y", "--slot")
WRONG = [("nonsense",), ("inspect",), ("log", "x", "--limit", "0"), ("ui", "x", "--port", "65536")]
WRONG += [(*RESTORE, slot) for slot in ("new", "-1", "1.5")]


@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_wrong_usage_exits_with_2(arguments: tuple[str, ...]) -> None:
    refused = tidelog(*arguments)
    assert refused.exit_code == 2
    assert arguments[0] != "restore" or "'latest'" in refused.stderr


def test_a_wrong_option_exits_with_2_and_names_the_action(tmp_path: Path) -> None:
    result = tidelog("inspect", tmp_path, "--endpoint", "http://localhost:1")
    assert result.exit_code == 2
    assert "Next: remove them" in result.stderr


@pytest.mark.parametrize("command", READERS, ids=" ".join)
def test_a_url_without_a_job_is_an_error(command: tuple[str, ...], tmp_path: Path) -> None:
    group, *rest = command
    sub = rest if group == "checkpoints" else []
    options = [] if group == "checkpoints" else rest
    result = tidelog(group, *sub, tmp_path / "typo", *options)
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
@pytest.mark.parametrize("command", READERS, ids=" ".join)
def test_a_damaged_manifest_is_named_with_what_to_do(
    command: tuple[str, ...], damage: object, tmp_path: Path
) -> None:
    objects = damaged(filled(), NEWEST, damage)  # type: ignore[arg-type]
    store = lay_out(tmp_path / "store", objects)
    match command:
        case ("checkpoints", sub):
            result = tidelog("checkpoints", sub, store)
        case ("restore", *_):
            result = tidelog("restore", store, "--to", tmp_path / "target")
        case (name, *options):
            result = tidelog(name, store, *options)
    assert result.exit_code == 1
    assert NEWEST in result.output
    assert "next: " in result.output.lower()
    if damage is of_a_newer_release:
        assert "use the tidelog release that wrote it" in result.output or command == ("sweep",)
    assert files(store) == objects
    assert not (tmp_path / "target").exists()
