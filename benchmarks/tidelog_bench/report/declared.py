"""Quotes and targets: declared in quotes.toml and targets.toml, found among recorded sessions.

Invariant: a figure comes from the newest session that is not quick and has it with enough pairs.
"""

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from tidelog.errors import ConfigError
from tidelog_bench.experiment import Figure, Ratio, Setting, Size
from tidelog_bench.report.numbers import (
    ENOUGH,
    Spread,
    Verdict,
    figures,
    number,
    ratios,
    unit_of_name,
    verdict,
)
from tidelog_bench.session.records import Record, SessionRecord, TrialRecord, pairs_needed, trials

Recorded = Sequence[tuple[SessionRecord, Sequence[Record]]]
ABSENT = "not measured"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The cell that a figure is of: has these settings and lacks those."""

    experiment: str
    where: dict[str, Setting] = {}
    lacks: list[str] = []
    figure: str


class Shown(msgspec.Struct, frozen=True):
    """Another figure than that of the row."""

    figure: str
    of: str


class Row(Place, frozen=True, kw_only=True):
    """A row of a table: a column shows a variant, a ratio `over / under`, or nothing."""

    text: str
    shows: list[str | Shown]
    command: str = ""


class Table(msgspec.Struct, frozen=True):
    """A table in Markdown; the first column has the texts."""

    name: str
    columns: list[str]
    rows: list[Row]


class Target(Place, frozen=True, kw_only=True):
    """What the median of a variant or of a ratio is to be."""

    text: str
    of: str
    at_most: float | None = None
    at_least: float | None = None

    def result(self, recorded: Recorded) -> dict[str, Any]:
        """Limits, `says` (met, missed or not measured), and the spread or null."""
        found = find_figure(recorded, self, self.figure, self.of)
        says = ABSENT
        if found is not None:
            low = self.at_least is None or found["median"] >= self.at_least
            high = self.at_most is None or found["median"] <= self.at_most
            says = "met" if low and high else "missed"
        spread = found and {name: found[name] for name in ("median", "min", "max", "n")}
        return {**msgspec.to_builtins(self), "says": says, "spread": spread}


class Declared(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that one of the files declares."""

    tables: list[Table] = []
    targets: list[Target] = []


@cache
def declared(name: str) -> Declared:
    data = files("tidelog_bench.report").joinpath(f"{name}.toml").read_bytes()
    return msgspec.toml.decode(data, type=Declared)


def find_figure(recorded: Recorded, place: Place, figure: str, of: str) -> Spread | None:
    """The spread of a variant's figure or of a ratio; of several cells that fit, the first."""
    over, _, under = of.partition(" / ")
    for session, records in sorted(recorded, key=lambda each: each[0].started, reverse=True):
        cells: dict[str, list[TrialRecord]] = {}
        for trial in trials(records, place.experiment) if session.size != Size.QUICK else ():
            settings = trial.settings
            fits = all(k in settings and settings[k] == v for k, v in place.where.items())
            if fits and not any(name in settings for name in place.lacks):
                cells.setdefault(trial.cell, []).append(trial)
        for cell in cells.values():
            by_name = ratios(cell, [Ratio(over, under)]) if under else figures(cell)
            spread = by_name.get(of, {}).get(figure)
            enough = pairs_needed(cell[0].settings, ENOUGH)
            if spread is not None and spread["n"] >= enough:
                return spread
    return None


def quoted(spread: Spread | None, figure: str, of: str) -> str:
    """`123 ms (110-133)`, `0.28x (0.25-0.34)`."""
    if spread is None:
        return ABSENT
    unit, scale = unit_of_name(figure), 1.0
    if unit == "ms" and spread["median"] >= 1000 and "/" not in of:
        unit, scale = "s", 1000.0
    median, low, high = (_rounded(spread[name] / scale) for name in ("median", "min", "max"))
    between = f" ({low}-{high})" if low != high else ""
    if "/" in of:
        noise = verdict(spread, Figure(figure, "", "")) is Verdict.NOISE
        return f"{median}x{between}{', within noise' if noise else ''}"
    if unit.startswith("$"):
        return f"${median}{unit[1:]}{between}"
    # A rate has its unit in the text beside it.
    return f"{median}{'' if unit.startswith('/') or not unit else f' {unit}'}{between}"


def limit(target: dict[str, Any]) -> str:
    """`at most 90`."""
    most = target["at_most"]
    return f"at least {number(target['at_least'])}" if most is None else f"at most {number(most)}"


def _rounded(value: float) -> str:
    """Two digits that count, three from 100 on."""
    return number(float(f"{value:.{3 if abs(value) >= 100 else 2}g}"))


_BLOCK = re.compile(
    r"(<!-- figures ([\w-]+): written by `just figures` -->\n).*?(<!-- end of figures -->)", re.S
)


def with_figures(page: str, recorded: Recorded) -> str:
    """A page with the tables between its markers as they should be; raises ConfigError."""
    tables = {table.name: table for table in declared("quotes").tables}

    def block(found: re.Match[str]) -> str:
        if found[2] not in tables:
            raise ConfigError(
                f"marker of figures {found[2]}",
                expected=f"one of {', '.join(tables)}",
                found=found[2],
                action="declare the table in report/quotes.toml or correct the marker",
            )
        return f"{found[1]}\n{_markdown(tables[found[2]], recorded)}\n\n{found[3]}"

    return _BLOCK.sub(block, page)


def pages() -> list[Path]:
    """README and the documentation in the working directory, as far as they have a marker."""
    every = [Path("README.md"), *sorted(Path("docs").rglob("*.md"))]
    return [path for path in every if path.exists() and _BLOCK.search(path.read_text("utf-8"))]


def _markdown(table: Table, recorded: Recorded) -> str:
    command = any(row.command for row in table.rows)
    heads = ["", *table.columns, *(["command"] if command else [])]
    lines = [heads, ["---", *["---:"] * len(table.columns), *(["---"] if command else [])]]
    for row in table.rows:
        cells = [row.text]
        for each in row.shows:
            shown = Shown(row.figure, each) if isinstance(each, str) else each
            spread = find_figure(recorded, row, shown.figure, shown.of) if shown.of else None
            cells.append(quoted(spread, shown.figure, shown.of) if shown.of else "")
        lines.append([*cells, *([f"`{row.command}`" if row.command else ""] if command else [])])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
