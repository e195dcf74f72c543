"""Fixtures of the format's tests."""

import os

import pytest

from tests.unit.spark.scala_checks import ScalaChecks, compiled_checks


@pytest.fixture(scope="session")
def scala_checks(tmp_path_factory: pytest.TempPathFactory) -> ScalaChecks:
    """The compiled Scala checks."""
    base = tmp_path_factory.getbasetemp()
    return compiled_checks(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)
