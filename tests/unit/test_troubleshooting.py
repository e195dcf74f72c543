"""Each message that the page of troubleshooting explains is one that the source can still give."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.support.documentation import ROOT

PAGE = ROOT / "docs" / "guides" / "troubleshooting.md"
MESSAGES = re.findall(r"^\| `([^`]+)`[^|]*\| .* \| .* \|$", PAGE.read_text(), re.MULTILINE)
ANY = "…"
"""A name or a number, on the page."""
FILLED_IN = re.compile(r"%\(\w+[^)]*\)[\d.]*[sdf]|`[^`]*`")


def text_of(node: ast.AST) -> str | None:
    """The text of a string or an f-string, with the same sign for all that is filled in."""
    match node:
        case ast.Constant(value=str(value)):
            return FILLED_IN.sub(ANY, value)
        case ast.JoinedStr(values=parts):
            return FILLED_IN.sub(ANY, "".join(text_of(part) or ANY for part in parts))
    return None


def texts() -> Iterator[str]:
    """All texts of the source but docstrings, each without line breaks."""
    for path in sorted((ROOT / "src" / "tidelog").rglob("*.py")):
        tree = ast.parse(path.read_text())
        docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if node not in docstrings and (text := text_of(node)):
                yield " ".join(text.split())


TEXTS = "\n".join(dict.fromkeys(texts()))


def lacking(message: str) -> list[str]:
    """What of a message no text of the source has: its name, what was expected, what was found."""
    parts = re.split(r"; expected |; found ", message)
    known = [part for part in parts if re.search(r"\w{4}", part)]
    assert known, "a message that says nothing"
    return [part for part in known if not re.search(pattern_of(part), TEXTS)]


def pattern_of(part: str) -> str:
    return ".*".join(re.escape(piece) for piece in part.strip(f"{ANY} ").split(ANY))


@pytest.mark.parametrize("message", MESSAGES)
def test_the_source_still_gives_this_message(message: str) -> None:
    assert lacking(message) == [], "correct the page: the source has no such text any more"


def test_the_page_explains_messages_of_every_kind() -> None:
    assert len(MESSAGES) > 60
    assert len(set(MESSAGES)) == len(MESSAGES)


def test_a_message_that_the_source_does_not_give_is_noticed() -> None:
    assert lacking("store …; expected a horse") == ["a horse"]
