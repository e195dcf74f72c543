"""Errors of Spark as errors of tidelog: those of its environment, which pass, and all others.

Invariant: an error that another try may not meet says so, whatever Spark was doing for us.
"""

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from tidelog.errors import TidelogError, UnavailableError

_SHOWN_CHARACTERS: Final = 400
_RAISED: Final = re.compile(r"^(\w+(?:\.\w+)*(?:Error|Exception)): (.*)$", re.MULTILINE)
"""The last line of a traceback in Python."""


class _Passing(NamedTuple):
    """A failure of Spark's environment, which says nothing of the query or of what is stored."""

    sign: re.Pattern[str]
    """What the name and the text of the error have."""
    expected: str
    action: str


_PASSING: Final = (
    _Passing(
        re.compile(
            r"Python worker failed to connect back|waiting for the Python worker to connect back|"
            r"Python daemon failed to launch worker|STREAMING_PYTHON_RUNNER_INITIALIZATION"
        ),
        "each Python process that Spark starts to answer in time, which is ten seconds at first; "
        "this machine was too busy for it, or that process ended",
        "start again, when the machine is less busy or with fewer cores (--master 'local[2]', or "
        "spark.executor.cores); no setting of Spark gives more time. If it comes each time, see "
        "what that process wrote to standard error, and whether PYSPARK_PYTHON is a Python that "
        "has tidelog",
    ),
    _Passing(
        re.compile(r"ExecutorLostFailure|Python worker exited unexpectedly"),
        "executors, and Python processes of theirs, that live until the end",
        "start again; if it comes each time, the executor's log says why: more often than not it "
        "needs more memory (spark.executor.memory, spark.executor.memoryOverhead)",
    ),
    _Passing(
        re.compile(r"java\.net\.BindException"),
        "a free port for Spark's driver",
        "start again, or end what has the port; spark.driver.port, spark.ui.port and "
        "spark.port.maxRetries say which ports are tried",
    ),
    _Passing(
        re.compile(r"^(Py4JNetwork|Connection\w+|BrokenPipe)Error: |SparkContext was shut down"),
        "the JVM of Spark's driver to live until the end",
        "start again; if it comes each time, see what the JVM wrote to standard error before it "
        "ended: more often than not it needs more memory (spark.driver.memory)",
    ),
)


@contextmanager
def translated(kind: type[TidelogError], what: str, expected: str, action: str) -> Iterator[None]:
    """Within, an error of Spark is raised as one of this kind, and every other error as it is;
    what may pass by itself as UnavailableError.
    """
    try:
        yield
    except Exception as error:
        if not _is_of_spark(error):
            raise
        for passing in _PASSING:
            if passing.sign.search(f"{type(error).__name__}: {error}"):
                kind, expected, action = UnavailableError, passing.expected, passing.action
                break
        raise kind(what, expected=expected, found=_reason(error), action=action) from error


def _is_of_spark(error: Exception) -> bool:
    """Whether Spark or its bridge to Python raised it: that also lets errors of a socket pass."""
    modules = {type(error).__module__}
    if isinstance(error, ConnectionError):
        for frame, _ in traceback.walk_tb(error.__traceback__):
            modules.add(frame.f_globals.get("__name__", ""))
    return any(module.partition(".")[0] in ("pyspark", "py4j") for module in modules)


def _reason(error: Exception) -> str:
    """What a function in Python raised, else what Spark says first."""
    raised = [f"{kind}: {text}" for kind, text in _RAISED.findall(str(error))]
    java = getattr(error, "java_exception", None)
    message = str(error if java is None else java.toString()).strip().partition("\n")[0]
    return (raised[-1] if raised else message)[:_SHOWN_CHARACTERS]
