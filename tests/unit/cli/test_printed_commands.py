"""Every `tidelog` command that a page prints has a name and options that exist."""

import re
import shlex
from collections.abc import Iterator

import click
import pytest

from tests.support.documentation import PAGES
from tidelog.cli import main

COMMAND = re.compile(r"(?:^|&& |sudo -u tidelog )(?:\.venv/bin/)?tidelog (.+)$")
BLOCKS = re.compile(r"^```(?:sh)?\n(.*?)^```$|^ {4}(tidelog .*)$", re.DOTALL | re.MULTILINE)


def printed() -> Iterator[tuple[str, str]]:
    """Pages with the arguments that they print, without comments and what follows a pipe."""
    for page in PAGES:
        for block, line in BLOCKS.findall(page.read_text()):
            for command in (block or line).replace("\\\n", " ").splitlines():
                found = COMMAND.search(re.split(r" +#| [|>&] ?", command)[0].strip())
                if found:
                    yield page.stem, found[1].replace(" ...", "")


def check(words: list[str]) -> None:
    """Parses as the command line does, but runs nothing; raises UsageError."""
    command: click.Command | None = main
    context: click.Context | None = None
    while command is not None:
        context = click.Context(command, parent=context)
        _, words, _ = command.make_parser(context).parse_args(words)
        if not isinstance(command, click.Group):
            return
        _, command, words = command.resolve_command(context, words)


@pytest.mark.parametrize(("page", "arguments"), list(printed()))
def test_a_printed_command_has_options_that_exist(page: str, arguments: str) -> None:
    check(shlex.split(arguments))


def test_many_commands_are_printed() -> None:
    assert len(list(printed())) > 50


@pytest.mark.parametrize("wrong", ["runs job", "run job --stores here", "checkpoints lists here"])
def test_a_wrong_name_or_option_is_noticed(wrong: str) -> None:
    with pytest.raises(click.UsageError):
        check(wrong.split())
