"""The plug-in's decisions, its log on a directory and its formats pass their checks in Scala.

The checks are in native/spark-state-store/src/test and need no test library.
"""

import re

import pytest

from tests.unit.spark.scala_checks import GOLDEN, SOURCES, ScalaChecks

MAINS = {"core.CoreChecks": (), "format.FormatChecks": (GOLDEN,)}
CHECKS = [
    (f"{folder}.{folder.capitalize()}Checks", name)
    for folder in ("core", "format")
    for path in sorted((SOURCES / folder).glob("*.scala"))
    for name in re.findall(r'\bcheck\("([^"]+)"\)', path.read_text())
]


@pytest.fixture(scope="session")
def outcomes(scala_checks: ScalaChecks) -> dict[tuple[str, str], str | None]:
    """Why a check failed, or None, by its main object and its name."""
    return {
        (main, name): failure
        for main, arguments in MAINS.items()
        for name, failure in scala_checks.outcomes(main, *arguments).items()
    }


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check[1])
def test_in_scala(outcomes: dict[tuple[str, str], str | None], check: tuple[str, str]) -> None:
    assert outcomes[check] is None


def test_every_check_is_run(outcomes: dict[tuple[str, str], str | None]) -> None:
    assert sorted(outcomes) == sorted(CHECKS)
