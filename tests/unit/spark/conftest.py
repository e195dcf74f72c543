"""Fixtures of the format's tests."""

import pytest

from tests.unit.spark.scala_checks import ScalaChecks, compiled_checks


@pytest.fixture(scope="session")
def scala_checks() -> ScalaChecks:
    """The compiled Scala checks."""
    return compiled_checks()
