"""What Spark's environment does to `tidelog spark run` is told apart from mistakes of the job."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from tests.support.cli import tidelog

FAILED_QUERY = (
    "[STREAM_FAILED] Query [id = 2b0e, runId = 91aa] terminated with exception: Job aborted due to "
    "stage failure: Task 0 in stage 4.0 failed 1 times, most recent failure: Lost task 0.0 in "
    "stage 4.0 (TID 4) (host executor driver): {}\n\nDriver stacktrace: SQLSTATE: XXKST\n=== "
    "Streaming Query ===\nIdentifier: count [id = 2b0e, runId = 91aa]\n"
)
CONNECT_BACK = """org.apache.spark.SparkException: Python worker failed to connect back.
\tat org.apache.spark.api.python.PythonWorkerFactory.createSimpleWorker(PythonWorkerFactory.scala:1)
Caused by: java.net.SocketTimeoutException: Timed out while waiting for the Python worker to connect
 back after 10000 ms"""
LOST = "ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: code 137"
CRASHED = "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"
RAISED = 'Traceback (most recent call last):\n  File "job.py", line 1, in f\nValueError: low tide\n'
REFUSED = f"{RAISED}ConnectionRefusedError: [Errno 111] Connection refused by the database\n"
BOUND = "java.net.BindException: Address already in use: Service 'sparkDriver' failed after 16"


def fails(error: Exception) -> Any:
    raise error


def jvm_that_is_gone() -> Any:
    """What py4j says where nothing listens any more."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return JavaGateway(gateway_parameters=GatewayParameters(port=port)).jvm.System.nanoTime()


def ended(failure: Any, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    """The end of a query that fails by this call."""

    @contextmanager
    def no_session(*_: Any, **__: Any) -> Iterator[None]:
        yield None

    monkeypatch.setattr("tidelog.spark.session.session", no_session)
    monkeypatch.setattr("tidelog.spark.jobs.run", lambda *_, **__: failure())
    paths = ("--input", directory, "--checkpoint", directory / "checkpoint")
    return tidelog("spark", "run", "tidelog.examples.wordcount:job", *paths)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        (FAILED_QUERY.format(CONNECT_BACK), "with fewer cores (--master 'local[2]'"),
        (f"[X] {CONNECT_BACK}", "no setting of Spark gives more time"),
        (FAILED_QUERY.format(LOST), "spark.executor.memoryOverhead"),
        (FAILED_QUERY.format(CRASHED), "spark.executor.memoryOverhead"),
        (BOUND, "spark.port.maxRetries"),
    ],
)
def test_a_failure_of_the_environment_says_that_a_retry_is_safe_and_what_helps(
    text: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = ended(lambda: fails(PySparkException(text)), tmp_path, monkeypatch)
    assert result.exit_code == 1
    assert "Next: start again" in result.stderr and advice in result.stderr
    assert result.stderr.endswith("(a retry is safe).\n")
    assert "correct what it says" not in result.stderr


@pytest.mark.parametrize(
    "failure", [jvm_that_is_gone, lambda: fails(Py4JNetworkError("Answer from Java side is empty"))]
)
def test_a_driver_that_is_gone_is_named(
    failure: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = ended(failure, tmp_path, monkeypatch)
    assert result.exit_code == 1 and "spark.driver.memory" in result.stderr


@pytest.mark.parametrize(("text", "found"), [(RAISED, "low tide"), (REFUSED, "the database")])
def test_what_the_function_of_a_job_raises_is_to_be_corrected(
    text: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = PySparkException(FAILED_QUERY.format(text))
    result = ended(lambda: fails(error), tmp_path, monkeypatch)
    assert result.exit_code == 1
    assert found in result.stderr and "Next: correct what it says" in result.stderr
