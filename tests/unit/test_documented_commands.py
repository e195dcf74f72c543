"""Every `tidelog` command that the documentation prints is one, with options that it has."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

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
