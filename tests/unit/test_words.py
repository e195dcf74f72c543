"""Names and texts use the field's words, so that nobody has to learn a private language."""

import ast
import re
from collections import Counter
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

VAGUE = """
    found held made taken kept given left begun opened moved told shown wanted known stored named
    seen gone ended closing closings ending handed asked lacking missing drawn drawing grown worked
    took dealt spared claimed said each own most least whole fresh here above place way mine ours
    theirs others some few apart of at
"""
SAYS_NOTHING = frozenset(VAGUE.split())
"""Participles, prepositions and determiners, which as a name say nothing of the thing."""
PACKAGES = sorted(path for path in (ROOT / "src" / "tidelog").iterdir() if path.is_dir())
MOST_IN_A_PACKAGE = 0.01
MOST_IN_ALL = 0.007
"""Shares of such names; `found` is a keyword of our errors. They only ever fall."""

COMPREHENSION = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
COMPREHENSIONS = 15
"""Most of them in 1,000 lines of a package."""
DENSER = {"changelog", "checkpoint", "cli", "spark", "state"}
"""Packages that still have more."""

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


def phrases() -> dict[str, str]:
    """The table of CONTRIBUTING.md: phrases, and the plain form."""
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("\n## Words\n")[2]
    rows = [row.strip("| ").split(" | ") for row in table.splitlines() if row.startswith("| ")]
    return {phrase: plain for names, plain in rows[1:] for phrase in names.split(", ")}


def phrases_of(page: Path) -> set[str]:
    """Those that a page uses outside of code."""
    prose = " ".join(re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.S).split())
    return {name for name in phrases() if re.search(rf"(?i)(?<![\w-]){name}(?![\w-])", prose)}


def test_a_page_uses_plain_phrases() -> None:
    used = {str(page.relative_to(ROOT)): phrases_of(page) for page in PAGES}
    assert {page: names for page, names in used.items() if names} == {}
    assert 20 <= len(phrases()) <= 40


def bound_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.arg(arg=name) if name not in ("self", "cls"):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def names_that_say_nothing(paths: list[Path]) -> tuple[float, Counter[str]]:
    """Their share of all names that are bound, and where they are."""
    bound = [(path, name) for path in paths for name in bound_names(tree_of(path))]
    vague = [(path, name) for path, name in bound if name.lstrip("_") in SAYS_NOTHING]
    places = Counter(f"{path.relative_to(ROOT)}: {name}" for path, name in vague)
    return len(vague) / max(1, len(bound)), places


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_almost_every_name_says_what_a_thing_is(package: Path) -> None:
    share, places = names_that_say_nothing(sorted(package.rglob("*.py")))
    assert share <= MOST_IN_A_PACKAGE, places.most_common()


def test_of_all_names_even_fewer_say_nothing() -> None:
    share, places = names_that_say_nothing(sorted((ROOT / "src" / "tidelog").rglob("*.py")))
    assert share <= MOST_IN_ALL, places.most_common(20)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_comprehension_is_short_and_rare_enough_to_be_read_once(package: Path) -> None:
    paths = sorted(package.rglob("*.py"))
    found = [
        (path, node)
        for path in paths
        for node in ast.walk(tree_of(path))
        if isinstance(node, COMPREHENSION)
    ]
    nested = [f"{path.relative_to(ROOT)}:{node.lineno}" for path, node in found if is_nested(node)]
    assert nested == []
    lines = sum(path.read_text().count("\n") for path in paths)
    assert package.name in DENSER or len(found) * 1_000 <= COMPREHENSIONS * lines


def is_nested(node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> bool:
    inner = [part for part in ast.walk(node) if isinstance(part, COMPREHENSION)]
    return len(node.generators) > 1 or len(inner) > 1
