"""The plug-in's decisions, its log on a directory and its formats pass their checks in Scala.

The checks are in native/spark-state-store/src/test and need no test library.

The Maven project of native/ says what the compilation on first use says.
"""

import re
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.unit.spark.scala_checks import GOLDEN, SOURCES, ScalaChecks
from tidelog.spark.plugin.jar import COMPILER_OPTIONS
from tidelog.spark.plugin.toolchain import SUPPORTED

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


ROOT = Path(__file__).parents[3]
POMS = sorted((ROOT / "native").glob("*/pom.xml"))
NAMES = {"": "http://maven.apache.org/POM/4.0.0"}


@pytest.fixture
def project() -> ElementTree.Element:
    return ElementTree.parse(ROOT / "native" / "pom.xml").getroot()


def texts(element: ElementTree.Element, path: str) -> list[str | None]:
    return [found.text for found in element.findall(path, NAMES)]


def test_scala_is_compiled_with_the_same_options(project: ElementTree.Element) -> None:
    assert texts(project, ".//args/arg") == list(COMPILER_OPTIONS)


def test_every_supported_spark_has_a_profile(project: ElementTree.Element) -> None:
    minors = [f"{major}.{minor}" for major, minor in SUPPORTED]
    assert texts(project, "profiles/profile/id") == [f"spark-{minor}" for minor in minors]
    assert texts(project, "profiles/profile/properties/spark.minor") == minors
    versions = texts(project, "profiles/profile/properties/spark.version")
    assert [(version or "").rpartition(".")[0] for version in versions] == minors


def test_every_module_has_the_version_of_the_library(project: ElementTree.Element) -> None:
    library = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    parents = [ElementTree.parse(pom).getroot() for pom in POMS]
    assert len(parents) == len(texts(project, "modules/module"))
    versions = [text for parent in parents for text in texts(parent, "parent/version")]
    assert {*texts(project, "version"), *versions} == {library}
