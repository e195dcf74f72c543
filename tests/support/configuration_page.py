"""The generated part of docs/reference/configuration.md; run as a module, writes it."""

from collections.abc import Iterable
from itertools import groupby

from tests.support import documentation
from tests.support.documentation import ROOT
from tidelog.options.declaration import Declared
from tidelog.settings.declared import OPTIONS, flag

PAGE = ROOT / "docs" / "reference" / "configuration.md"
BEGIN = "<!-- generated from the declarations: `just configuration` -->\n"


def section(declared: Declared) -> str:
    """The part of the configuration that an option is in; empty for the job itself."""
    return declared.path[0] if len(declared.path) > 1 else ""


def row(declared: Declared) -> Iterable[str]:
    """The cells of an option."""
    option = declared.option
    also = "".join(f", `{alias}`" for alias in option.aliases)
    cells = (
        f"`{declared.name}`",
        declared.default_text,
        option.expected,
        f"{option.help} *{option.when}*",
        f"`{flag(declared)}`{also}",
    )
    return (cell.replace("|", "\\|") for cell in cells)


def generated() -> str:
    """A table for each part of the configuration."""
    heads = "option | default | values | what it does, *and when to change it* | flag"
    lines = []
    for name, options in groupby(OPTIONS.values(), section):
        lines += [f"### {name or 'The job'}", "", *documentation.table(heads, map(row, options))]
    return "\n".join(lines)


def with_generated(page: str) -> str:
    """The page with its generated part as it should be."""
    return documentation.with_generated(page, BEGIN, generated())


if __name__ == "__main__":
    PAGE.write_text(with_generated(PAGE.read_text()))
