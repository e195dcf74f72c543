"""Names and texts use the field's words, so that nobody has to learn a private language."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.test_layering import tree_of

ROOT = Path(__file__).parents[2]
CODE = [path for top in ("src", "benchmarks") for path in sorted((ROOT / top).rglob("*.py"))]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
HISTORY = ROOT / "docs" / "decisions"
"""Records of what was thought at a time."""

BETTER = {
    "baton": "state lock",
    "blame": "user code",
    "heard": "active, received",
    "manners": "behaviour",
    "misfit": "row violation",
    "owed": "due",
    "stretch": "range",
    "thinned": "downsampled",
    "thrifty": "skip unchanged",
    "tidy": "sweep expired, remove",
    "whoever": "the one that, or say who",
}
"""Private words, and what the field says instead."""

IN_A_NAME = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
"""A word of an identifier in snake or camel case."""
WORD = re.compile(rf"\b({'|'.join(BETTER)})\b", re.IGNORECASE)


def names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.AsyncFunctionDef(name=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name):
                yield name


def texts(path: Path) -> Iterator[str]:
    """All text of a page or a module, identifiers cut into their words."""
    text = path.read_text()
    yield text
    if path.suffix == ".py":
        for name in set(names(tree_of(path))):
            yield " ".join(IN_A_NAME.findall(name))


@pytest.mark.parametrize("paths", [CODE, PAGES], ids=["code", "pages"])
def test_no_private_word_stands_where_the_field_has_one(paths: list[Path]) -> None:
    found = {
        (str(path.relative_to(ROOT)), word.lower())
        for path in paths
        if HISTORY not in path.parents
        for text in texts(path)
        for word in WORD.findall(text)
    }
    assert sorted(f"{path}: {word}, better: {BETTER[word]}" for path, word in found) == []
