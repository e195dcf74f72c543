"""Which exit code each cause has: 2 is for what no other start can help, so that a unit may start
a job again after all others.
"""

import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import Result

from tests.support.cli import tidelog
from tests.support.documentation import ROOT
from tidelog import errors
from tidelog.cli.exit_codes import EXIT_FENCED, EXIT_OK, EXIT_PROBLEM, EXIT_USAGE, exit_code_of
from tidelog.errors import TidelogError
from tidelog.storage.errors import from_answer

OPERATIONS = (ROOT / "docs" / "guides" / "operations.md").read_text()
TABLE = OPERATIONS.partition("### Exit codes")[2].partition("\n#")[0]

KEY = "a" * 43 + "="
JOB = """
from tidelog import ForeachSink, Job, JobArguments, IterableSource


def job(arguments: JobArguments):
    made = Job("counting")
    made.source(IterableSource([1])).sink(ForeachSink(lambda n: n / {divisor}))
    return made


def without_arguments():
    return job(None)


not_a_job = 7
"""


class Place:
    """A directory with a job, its input, and what is wrong with it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "in").mkdir()
        (root / "in" / "a.txt").write_text("low tide\n")
        (root / "sound.py").write_text(JOB.format(divisor=1))
        (root / "failing.py").write_text(JOB.format(divisor=0))
        (root / "broken.py").write_text("import no_such_library\n")
        (root / "job.toml").write_text('memory = "64 MiB"\n')
        (root / "empty.key").write_text("")
        (root / "no.key").write_text("no key\n")
        (root / "a.key").write_text(f"{KEY}\n")

    def run(self, *options: str, job: str = "wordcount") -> Result:
        given = [option.replace("HERE", str(self.root)) for option in options]
        arguments = ["--store", str(self.root / "store"), "--table", "memory", *given]
        if job == "wordcount" and "--input" not in options:
            arguments += ["--input", str(self.root / "in")]
        name = job.replace("HERE", str(self.root))
        return tidelog("run", name, *arguments, "--output", str(self.root / "out"))


@contextmanager
def taken_port() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield str(server.getsockname()[1])


def with_taken_port(place: Place) -> Result:
    with taken_port() as port:
        return place.run("--metrics-port", port)


def run(*options: str, job: str = "wordcount") -> Callable[[Place], Result]:
    return lambda place: place.run(*options, job=job)


def store_of_another_job(place: Place) -> Result:
    assert place.run().exit_code == EXIT_OK
    return place.run(job="HERE/sound.py:job")


CAUSES: dict[str, tuple[int, Callable[[Place], Result]]] = {
    "the job has finished": (EXIT_OK, run()),
    "the metrics port is taken": (EXIT_PROBLEM, with_taken_port),
    "the input is not there": (EXIT_PROBLEM, run("--input", "HERE/not-mounted")),
    "no file of the input matches --include": (EXIT_PROBLEM, run("--include", "*.csv")),
    "the key file is not there": (EXIT_PROBLEM, run("--encryption-key", "file:HERE/late.key")),
    "the key file is empty": (EXIT_PROBLEM, run("--encryption-key", "file:HERE/empty.key")),
    "the configuration file is not there": (EXIT_USAGE, run("--config", "HERE/late.toml")),
    "the file of RocksDB's options is not there": (
        EXIT_USAGE,
        run("--rocksdb-options-file", "HERE/late.ini", "--table", "rocksdb"),
    ),
    "an import of the job fails": (EXIT_PROBLEM, run(job="HERE/broken.py:job")),
    "a function of the job fails": (EXIT_PROBLEM, run(job="HERE/failing.py:job")),
    "the work directory cannot be made": (EXIT_PROBLEM, run("--work-dir", "HERE/job.toml/work")),
    "the store does not answer": (
        EXIT_PROBLEM,
        run("--store", "s3://b/c", "--endpoint", "http://127.0.0.1:1", "--retry-deadline", "10ms"),
    ),
    "the store has another job's checkpoints": (EXIT_PROBLEM, store_of_another_job),
    "an option does not exist": (EXIT_USAGE, run("--nonsense")),
    "an option has a value that it does not take": (EXIT_USAGE, run("--memory", "much")),
    "the configuration file has an option that does not exist": (
        EXIT_USAGE,
        run("--config", "HERE/no.key"),
    ),
    "the job's name is none, or names no job": (EXIT_USAGE, run(job="HERE/sound.py:not_a_job")),
    "the job takes no arguments, and some were given": (
        EXIT_USAGE,
        run("--input", "HERE/in", job="HERE/sound.py:without_arguments"),
    ),
    "the job's file or module is not there": (EXIT_USAGE, run(job="HERE/late.py:job")),
    "the key file holds no key": (EXIT_USAGE, run("--encryption-key", "file:HERE/no.key")),
    "the store's URL is none": (EXIT_USAGE, run("--store", "s3:/b/c")),
    "the store has no such checkpoint": (EXIT_USAGE, run("--restore-checkpoint", "99")),
}
"""By cause: the code, and a run that ends by it."""

ELSEWHERE = {
    "the bucket is not there": EXIT_PROBLEM,
    "the store refuses the credentials": EXIT_PROBLEM,
    "a newer start of the job took the store over": EXIT_FENCED,
    "the job was stopped with a savepoint": EXIT_OK,
    "SIGTERM, or Ctrl-C": 130,
}
"""Causes that other tests prove, or the errors below."""

CLASSES = {
    "ConfigError": EXIT_USAGE,
    "FencedError": EXIT_FENCED,
    "CheckpointNotFoundError": EXIT_USAGE,
    "StateDefinitionError": EXIT_USAGE,
}
"""Errors whose code is not 1."""


def all_kinds(kind: type[TidelogError] = TidelogError) -> Iterator[type[TidelogError]]:
    yield kind
    for inner in kind.__subclasses__():
        yield from all_kinds(inner)


@pytest.mark.parametrize("cause", CAUSES)
def test_each_cause_has_its_exit_code(cause: str, tmp_path: Path) -> None:
    code, end = CAUSES[cause]
    result = end(Place(tmp_path))
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output


def test_each_kind_of_error_has_its_exit_code() -> None:
    kinds = [kind for kind in all_kinds() if kind.__module__ == errors.__name__]
    assert set(CLASSES) <= {kind.__name__ for kind in kinds}
    for kind in kinds:
        assert exit_code_of(kind("x", action="y")) == CLASSES.get(kind.__name__, EXIT_PROBLEM), kind


@pytest.mark.parametrize(
    ("status", "code", "exit_code"),
    [
        (404, "NoSuchBucket", EXIT_PROBLEM),
        (403, "AccessDenied", EXIT_PROBLEM),
        (301, "PermanentRedirect", EXIT_USAGE),
    ],
)
def test_what_a_store_refuses_ends_with_2_where_only_other_options_help(
    status: int, code: str, exit_code: int
) -> None:
    error = from_answer(status, code, "said so", "s3://b", "name", creates=False)
    assert isinstance(error, TidelogError) and exit_code_of(error) == exit_code


def test_the_guide_lists_every_cause_with_its_code() -> None:
    listed = {
        cause.strip(): int(code)
        for code, causes in re.findall(r"^\| (\d+) \| (.*?) \|", TABLE, re.M)
        for cause in causes.split(";")
    }
    assert listed == {cause: code for cause, (code, _) in CAUSES.items()} | ELSEWHERE
