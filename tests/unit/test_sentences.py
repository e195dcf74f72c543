"""Sentences of the first pages and of the guides are short, for readers of another language."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.documentation import ROOT

PAGES = sorted(path for part in ("start", "guides") for path in (ROOT / "docs" / part).glob("*.md"))
WORDS = 25
"""Most words of a sentence; code, a path and a formula in backticks is one."""
ITEM = re.compile(r"\s*([*+-]|\d+\.)\s+")
END = re.compile(r"(?<=[.?!])[)\"”*]*\s+(?=[\[\"*(`A-Z0-9])")
"""Where a sentence ends and another one begins."""


def paragraphs(text: str) -> Iterator[str]:
    """Prose: paragraphs and items of lists, but no headings, tables, code or comments."""
    prose = re.sub(r"^```.*?^```$|<!--.*?-->", "", text, flags=re.DOTALL | re.MULTILINE)
    lines: list[str] = []
    for line in [*prose.splitlines(), ""]:
        is_item = ITEM.match(line)
        if is_item or not line.strip() or line.startswith(("|", "#", "    ")):
            if lines:
                yield " ".join(lines)
            lines = []
        if is_item or (line.strip() and not line.startswith(("|", "#", "    "))):
            lines.append(ITEM.sub("", line, count=1).strip() if is_item else line.strip())


def sentences(text: str) -> Iterator[str]:
    for paragraph in paragraphs(text):
        words = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "X", paragraph))
        yield from END.split(words)


def length(sentence: str) -> int:
    return sum(bool(re.search(r"\w", word)) for word in sentence.split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_sentence_of_a_page_is_long(page: Path) -> None:
    found = [sentence for sentence in sentences(page.read_text()) if length(sentence) > WORDS]
    assert found == [], "make two sentences of it"


def test_prose_is_measured_and_nothing_else() -> None:
    page = (
        "# A title\n\nOne two `a b c`. [Three](x.md) four:\n\n* five\n  six. Seven\n\n    code a\n"
    )
    page += "\n| a | b |\n\n```\nlong code\n```\n\n1. eight\n"
    found = [length(sentence) for sentence in sentences(page)]
    assert found == [3, 2, 2, 1, 1]


def test_a_long_sentence_is_noticed() -> None:
    assert [length(sentence) for sentence in sentences(f"{'word ' * 30}.")] == [30]
