"""Every `tidelog` command that the documentation prints is one, with options that it has."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.support.cli import tidelog
from tests.support.documentation import PAGES, ROOT
from tidelog.cli import main

_COMMAND = re.compile(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?tidelog (.*)$")
_ENDS = ("|", "&&", ";", ">", ">>", "2>", "&")


def printed(page: Path) -> Iterator[list[str]]:
    """The words of each command in the blocks of a page, comments and what follows left out."""
    for block in re.findall(r"```(?:\w*)\n(.*?)```", page.read_text(), re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            for part in line.strip().split(" && "):
                found = _COMMAND.match(part)
                if found is not None:
                    words = shlex.split(found.group(1), comments=True)
                    end = next((n for n, word in enumerate(words) if word in _ENDS), len(words))
                    yield words[:end]


COMMANDS = sorted(
    {(str(page.relative_to(ROOT)), shlex.join(words)) for page in PAGES for words in printed(page)}
)


def test_commands_are_found() -> None:
    assert len(COMMANDS) > 50


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_a_printed_command_exists_with_its_options(page: str, command: str) -> None:
    words = shlex.split(command)
    found: click.Command = main
    while isinstance(found, click.Group):
        group, context = found, click.Context(found)
        assert words, f"{page}: a command is missing"
        if words[0].startswith("--"):
            assert words[0] in options_of(found), f"{page}: {words[0]} is no option"
            del words[: 1 if words[0] in ("--help", "--version") else 2]
            if not words:
                return
            continue
        below = group.get_command(context, words[0])
        assert below is not None, f"{page}: {words[0]!r} is no command"
        found, words = below, words[1:]
    known = options_of(found)
    used = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    assert [option for option in used if option not in known] == [], page


def options_of(command: click.Command) -> set[str]:
    names = {"--help"}
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            names |= {*parameter.opts, *parameter.secondary_opts}
    return names


ON_A_STORE = (
    "checkpoints list",
    "checkpoints show",
    "inspect",
    "log",
    "restore",
    "sweep",
    "report",
)
BY_ITSELF = ("estimate", "plan", "config explain", "key new")
RUN = [
    command
    for _, command in COMMANDS
    if command.startswith((*ON_A_STORE, *BY_ITSELF, "verify")) and "..." not in command
    if not command.startswith("verify") or command.endswith("--engine local")
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the word count of the first page leaves."""
    place = tmp_path_factory.mktemp("words")
    (place / "texts").mkdir()
    (place / "texts" / "tides.txt").write_text("the tide comes in\nthe tide goes out\n")
    run = ("run", "wordcount", "--input", place / "texts", "--output", place / "counts")
    assert tidelog(*run, "--store", place / "store").exit_code == 0
    return place / "store"


@pytest.mark.parametrize("command", RUN)
def test_a_printed_command_that_needs_a_store_alone_or_nothing_works(
    command: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is a local one in place of the cloud's that the guides have."""
    monkeypatch.chdir(tmp_path)
    words = [
        str(store)
        if re.match(r"s3://|out/store", word)
        else word.replace("/var/tmp", str(tmp_path))
        for word in shlex.split(command)
    ]
    done = tidelog(*words)
    assert done.exit_code == 0, done.output
