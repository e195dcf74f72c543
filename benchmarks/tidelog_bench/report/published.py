"""Figures that others have published about the same questions.

Invariant: they are shown as they were published, with setup and address, and never computed with:
another machine, another state, another store.
"""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Source:
    """Where figures were published."""

    title: str
    url: str
    setup: str


@dataclass(frozen=True, slots=True)
class Published:
    """One figure, or how it changed."""

    experiment: str
    what: str
    source: Source
    off: str | None = None
    """The figure without a state changelog."""
    on: str | None = None
    change: str | None = None


def published(experiment: str) -> list[Published]:
    """All figures that belong beside an experiment."""
    return [figure for figure in every() if figure.experiment == experiment]


@cache
def every() -> tuple[Published, ...]:
    """All figures there are."""
    text = files("tidelog_bench.report").joinpath("published.toml").read_text(encoding="utf-8")
    content = tomllib.loads(text)
    sources = {name: Source(**fields) for name, fields in content["sources"].items()}
    return tuple(
        Published(**{**fields, "source": sources[fields["source"]]})
        for fields in content["figures"]
    )
