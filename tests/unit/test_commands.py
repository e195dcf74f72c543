"""A command or an option that a page or a message names exists, so that advice can be followed."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.support.documentation import PAGES, ROOT
from tests.unit.test_layering import tree_of
from tidelog.cli import main

TODAY = [p for p in PAGES if p.parent.name != "decisions" and p.name != "format.md"]
"""Without records of what was thought at a time, and labels of keys that look like commands."""
SOURCES = sorted((ROOT / "src").rglob("*.py"))
OTHERS = [*sorted((ROOT / "src").rglob("*.js")), *sorted((ROOT / "native").rglob("*.scala"))]

LINE = re.compile(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?tidelog (.*)$")
"""A command in a block of a page."""
ENDS = ("|", "&&", ";", ">", ">>", "2>", "&")
NAMED = re.compile(r"`tidelog ([a-z][^`]*)`")
"""A command within a text."""
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z](?![\w-])")
FOREIGN = {"--x-s"}
"""What begins like an option and is none: the suffix of a directory bucket."""


def in_blocks(page: Path) -> Iterator[list[str]]:
    """The words of each command in the blocks of a page, comments and what follows left out."""
    for block in re.findall(r"```(?:\w*)\n(.*?)```", page.read_text(), re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            for part in line.strip().split(" && "):
                found = LINE.match(part)
                if found is not None:
                    words = shlex.split(found.group(1), comments=True)
                    end = next((n for n, word in enumerate(words) if word in ENDS), len(words))
                    yield words[:end]


def in_text(text: str) -> Iterator[list[str]]:
    """The words of each command that a text names."""
    for command in NAMED.findall(text):
        yield command.replace("'", "").split()


def strings(path: Path) -> Iterator[str]:
    """The texts of a module, with X for what is put into them when they are shown."""
    tree = tree_of(path)
    formatted = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    inner = {id(part) for node in formatted for part in node.values}
    for node in formatted:
        parts = [part.value if isinstance(part, ast.Constant) else "X" for part in node.values]
        yield "".join(map(str, parts))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.value


def check(words: list[str], *, whole: bool) -> None:
    """Find the command and its options; a `whole` one does not end with a group of commands."""
    command: click.Command = main
    while isinstance(command, click.Group):
        if not words:
            assert not whole, "a command is missing"
            return
        if words[0].startswith("--"):
            assert words[0] in options_of(command), f"{words[0]} is no option"
            words = words[1 if words[0] in ("--help", "--version") else 2 :]
            if not words:
                return
            continue
        below = command.get_command(click.Context(command), words[0])
        assert below is not None, f"{words[0]!r} is no command"
        command, words = below, words[1:]
    known = options_of(command)
    used = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    assert [option for option in used if option not in known] == []


def options_of(command: click.Command) -> set[str]:
    names = {"--help"}
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            names |= {*parameter.opts, *parameter.secondary_opts}
    return names


def commands(command: click.Command) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands(below)


@pytest.mark.parametrize("page", TODAY, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_command_of_a_page_exists_with_its_options(page: Path) -> None:
    for words in in_blocks(page):
        check(words, whole=True)
    for words in in_text(page.read_text()):
        check(words, whole=False)


def test_a_command_that_a_message_names_exists_with_its_options() -> None:
    texts = [text for path in SOURCES for text in strings(path)]
    texts += [path.read_text().replace("\\`", "`") for path in OTHERS]
    named = [words for text in texts for words in in_text(text)]
    assert len(named) > 100
    for words in named:
        check(words, whole=False)


def test_an_option_that_a_message_names_exists() -> None:
    known = FOREIGN.union(*map(options_of, commands(main)))
    named = {
        (str(path.relative_to(ROOT)), option)
        for path in SOURCES
        if path.parent.name != "examples"  # which are programs themselves
        for text in strings(path)
        for option in OPTION.findall(text)
    }
    assert len(named) > 100
    assert sorted((path, option) for path, option in named if option not in known) == []
