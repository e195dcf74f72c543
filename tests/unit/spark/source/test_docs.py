"""The documentation names every view, column and option, and no others."""

import re

from tests.support.documentation import ROOT
from tidelog.spark.source import options
from tidelog.spark.source.views import VIEWS

TEXT = (ROOT / "docs" / "guides" / "data-source.md").read_text()
NAME = re.compile(r"`(\w+)`")


def section(title: str, level: str) -> str:
    """The text under a heading, up to the next one of any level."""
    found = re.search(rf"^{level} {re.escape(title)}\n(.*?)(?=^##|\Z)", TEXT, re.M | re.S)
    assert found is not None, title
    return found[1]


def named(text: str) -> set[str]:
    """The names in the first column of the tables in a text."""
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("|")]
    return {name for cell in rows for name in NAME.findall(cell)}


def test_every_view_has_a_section_that_names_its_columns() -> None:
    assert set(re.findall(r"^### `(\w+)`$", TEXT, re.M)) == set(VIEWS)
    for name, view in VIEWS.items():
        text = section(f"`{name}`", "###")
        columns = {column.name for column in view.columns}
        if name == "state":
            assert columns <= set(NAME.findall(text))
        else:
            assert named(text) == columns


def test_decoded_columns_are_named() -> None:
    text = section("`changes`", "###")
    assert {column.name for column in VIEWS["changes"].decoded} <= set(NAME.findall(text))


def test_every_option_is_in_the_table() -> None:
    assert named(section("Options", "##")) == set(options._NAMES)
