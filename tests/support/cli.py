"""Runs the command line inside the test, on stores laid out in directories; and what
docs/reference/cli-json.md says of what it prints.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from tests.support.documentation import ROOT
from tidelog.cli import main

CLI_JSON = (ROOT / "docs" / "reference" / "cli-json.md").read_text()


def tidelog(*arguments: str | Path, env: Mapping[str, str] | None = None) -> Result:
    """Run `tidelog` with these arguments, and these environment variables besides its own."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments], env=env)


def count_words(text: Path, *options: str | Path, logs: Sequence[str] = ()) -> Result:
    """Run the word count of a directory, with its store and its output beside it."""
    place = text.parent
    paths = ["--input", text, "--store", place / "store", "--output", place / "out"]
    return tidelog(*logs, "run", "wordcount", *paths, "--table", "memory", *options)


def simulate(*arguments: str) -> Result:
    """Run the simulator's command with these arguments."""
    from tests.simulator.__main__ import command  # noqa: PLC0415  # few tests need it

    return CliRunner().invoke(command, list(arguments))


def lay_out(directory: Path, objects: Mapping[str, bytes]) -> Path:
    """A local store with these objects."""
    for name, data in objects.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return directory


def files(directory: Path) -> dict[str, bytes]:
    found = (path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in found}


def restored_rows(directory: Path) -> list[dict[str, Any]]:
    """What `tidelog restore --format jsonl` has written."""
    texts = [path.read_text() for path in sorted(directory.glob("*.jsonl"))]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def section(command: str) -> str:
    """What the page says of a command."""
    return CLI_JSON[CLI_JSON.index(f"## tidelog {command}") :].partition("\n## ")[0]


def keys(document: object) -> Iterator[str]:
    """All keys of a JSON document."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield key
            yield from keys(value)
    elif isinstance(document, list):
        for item in document:
            yield from keys(item)


def undocumented(document: object, text: str = CLI_JSON) -> set[str]:
    """The keys of a JSON document, if any, that the page or a part of it does not name."""
    return {key for key in keys(document) if f"`{key}`" not in text}
