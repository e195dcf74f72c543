"""One small Spark for the tests of a worker process; none where Spark cannot run."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.support import stores
from tests.spark.support.faults import CLASS, LIGHT, Faults
from tests.spark.support.faults import settings as faulty_settings
from tests.spark.support.place import Place
from tests.spark.support.session import TEST_S, build
from tests.spark.support.shared_classes import use_shared_classes
from tests.spark.support.stored import stored_query
from tests.support import postgres
from tests.support.depth import DEEP, VARIABLE
from tidelog.spark.plugin.settings import METRICS, end_jvm_without

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IN_EVERY_RUN = (
    "wordcount/",
    "handover/",
    "source/",
    "job/",
    "twelve/",
    "processor/",
    "verify/",
    "cost/",
    "bench/test_counted_file_system.py",
    "faults/",
    "kills/test_executors.py",
    "test_documented_blocks.py",
    "test_metrics.py",
    "test_notebook.py",
    "test_queries_apart.py",
    "test_segments.py",
    "test_snapshots.py",
    "test_zoo.py",
    "s3a/test_atomic_files",
)

PAGE = {"spark.ui.enabled": "true", "spark.ui.port": "0"}
"""Spark's servlets with the metrics are on the driver's web page."""

UPLOADS_GIVE_UP_SOON = {"spark.tidelog.upload.deadline": "5s"}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "plugin_only: looks into the log of the plug-in")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = f"{Path(__file__).parent}{os.sep}"
    extended = pytest.mark.skip(f"takes long: set {VARIABLE}=1, or run `just spark`")
    for item in items:
        path = str(item.path)
        if not path.startswith(here):
            continue
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_S))
        if not DEEP and not path.removeprefix(here).startswith(IN_EVERY_RUN):
            item.add_marker(extended)


@pytest.fixture(scope="session", autouse=True)
def _quick_start_of_spark() -> None:
    if stores.missing() is None:
        use_shared_classes()


@pytest.fixture(scope="session")
def spark_or_skip() -> None:
    if (reason := stores.missing()) is not None:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def faults(spark_or_skip: None, tmp_path_factory: pytest.TempPathFactory) -> Faults:
    """The rules of the worker's Spark; tests get it by `faulty`, which leaves none."""
    return Faults(tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="session")
def one_spark(faults: Faults, tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    # What is small lies in segments here, as what is large does; applications have the default.
    store = stores.store_settings(commit_bytes=0)
    settings = {
        **store,
        **stores.EAGER,
        **METRICS,
        **PAGE,
        **stores.INTERPRETED,
        **(UPLOADS_GIVE_UP_SOON if stores.chosen() == stores.PLUGIN else {}),
        **faulty_settings(faults.control, store.get("spark.jars", "")),
        "spark.local.dir": str(tmp_path_factory.mktemp("local")),
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    # A test of this worker may have had a Spark of its own, whose JVM knows no jar of these tests.
    end_jvm_without(CLASS)
    session = build("local[2]", settings)
    session.sparkContext._jsc.hadoopConfiguration().set(*LIGHT)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    if (reason := postgres.reason_without()) is not None:
        pytest.skip(reason)
    with postgres.server() as running:
        yield running


@pytest.fixture(scope="session")
def stored(one_spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The stored query; tests that change it work on a copy."""
    return stored_query(one_spark, tmp_path_factory.mktemp("stored"))


@pytest.fixture
def spark(one_spark: "SparkSession") -> Iterator["SparkSession"]:
    """A session with settings of its own on the worker's Spark."""
    session = one_spark.newSession()
    yield session
    for query in session.streams.active:
        query.stop()


@pytest.fixture
def faulty(faults: Faults) -> Iterator[Faults]:
    yield faults
    faults.clear()


@pytest.fixture
def faulty_apart(tmp_path: Path) -> Faults:
    """Rules for applications of this test alone."""
    return Faults(tmp_path / "faults")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture(autouse=True)
def _only_with_plugin(request: pytest.FixtureRequest, has_plugin: bool) -> None:
    if "plugin_only" in request.keywords and not has_plugin:
        pytest.skip(f"{stores.VARIABLE} asks for Spark's own store, which has no such log")


@pytest.fixture(scope="session")
def has_plugin() -> bool:
    """False where the environment asks for Spark's own store: it has no log to look into."""
    return stores.chosen() == stores.PLUGIN
