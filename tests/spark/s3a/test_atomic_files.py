"""Files of a checkpoint appear whole or not at all: on S3 with one PUT each, on a file system with
an atomic rename in Spark's own way, as a temporary file that is renamed.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from tests.spark.s3a.conftest import LoggedServer, s3a_options
from tests.wire.proxy import Behaviour, Exchange, proxy

FILE_EXISTS = "org.apache.hadoop.fs.FileAlreadyExistsException"


@dataclass(frozen=True)
class Files:
    """`AtomicFiles` below one directory; files are named relative to it."""

    jvm: Any
    root: str
    java: Any

    @classmethod
    def open(cls, jvm: Any, root: str, options: dict[str, str]) -> "Files":
        conf = jvm.org.apache.hadoop.conf.Configuration()
        # Hadoop keeps one client per bucket and user, whatever the settings are.
        conf.set("fs.s3a.impl.disable.cache", "true")
        for key, value in options.items():
            conf.set(key, value)
        path = jvm.org.apache.hadoop.fs.Path(root)
        return cls(jvm, root, jvm.tidelog.spark.storage.AtomicFiles.open(path, conf))

    def path(self, name: str) -> Any:
        return self.jvm.org.apache.hadoop.fs.Path(f"{self.root}/{name}")

    def create(self, name: str, content: bytes, *, overwrite: bool = False) -> Any:
        """A stream with the content written and not closed."""
        stream = self.java.createAtomic(self.path(name), overwrite)
        stream.write(content)
        return stream

    def write(self, name: str, content: bytes, *, overwrite: bool = False) -> None:
        self.java.write(self.path(name), content, overwrite)

    def read(self, name: str, *part: int) -> bytes:
        return bytes(self.java.read(self.path(name), *part))

    def names(self, directory: str = "") -> list[str]:
        found = self.java.manager().list(self.path(directory))
        return sorted(status.getPath().getName() for status in found)


def error_of(thrown: Py4JJavaError) -> str:
    """Class of the Java exception."""
    name: str = thrown.java_exception.getClass().getName()
    return name


_directories = count()


@pytest.fixture
def root(logged: LoggedServer) -> str:
    """A directory of its own for each test."""
    return f"s3a://{logged.server.bucket}/files-{next(_directories)}"


@pytest.fixture
def files(jvm: Any, logged: LoggedServer, root: str) -> Files:
    return Files.open(jvm, root, s3a_options(logged.server))


@pytest.fixture
def renamed(jvm: Any, tmp_path: Path) -> Files:
    """Local files of a query that has the plug-in's manager configured."""
    manager = "spark.sql.streaming.checkpointFileManagerClass"
    files = Files.open(jvm, f"file:{tmp_path}", {manager: "tidelog.spark.WouldOpenItselfForEver"})
    files.java.manager().mkdirs(files.path("commits"))
    return files


@pytest.fixture(params=["files", "renamed"])
def either(request: pytest.FixtureRequest) -> Files:
    """Every test with it holds for both kinds of file system."""
    found: Files = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def misled(jvm: Any, logged: LoggedServer, root: str) -> Iterator[tuple[Files, Behaviour]]:
    """The same through a proxy that misbehaves on request."""
    behaviour = Behaviour()
    with proxy(logged.server.endpoint, behaviour) as endpoint:
        yield Files.open(jvm, root, s3a_options(logged.server, endpoint)), behaviour


def key_of(files: Files, name: str) -> str:
    return f"{files.root.rsplit('/', 1)[1]}/{name}"


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_is_one_put_and_no_other_request(
    files: Files, logged: LoggedServer, overwrite: bool
) -> None:
    before = len(logged.requests())
    files.write("state/0/1/5.zip", b"content", overwrite=overwrite)
    assert logged.about(key_of(files, "state/0/1/5.zip")) == [("PutObject", 200)]
    assert logged.operations(before) == {"PutObject": 1}
    assert files.read("state/0/1/5.zip") == b"content"


def test_nothing_is_sent_before_close_and_nothing_at_all_after_cancel(
    files: Files, logged: LoggedServer
) -> None:
    before = len(logged.requests())
    stream = files.create("commits/0", b"half of ")
    stream.cancel()
    stream.write(b"a commit")
    stream.close()
    assert logged.operations(before) == {}
    stream = files.create("commits/0", b"content")
    stream.close()
    stream.close()
    stream.cancel()
    assert logged.about(key_of(files, "commits/0")) == [("PutObject", 200)]
    assert files.read("commits/0") == b"content"


def test_an_existing_file_stays_unless_it_may_be_replaced(either: Files) -> None:
    either.write("commits/0", b"first")
    with pytest.raises(Py4JJavaError) as refused:
        either.write("commits/0", b"second")
    assert error_of(refused.value) == FILE_EXISTS
    assert either.read("commits/0") == b"first"
    either.write("commits/0", b"third", overwrite=True)
    assert either.read("commits/0") == b"third"


def test_of_eight_writers_at_once_one_wins(misled: tuple[Files, Behaviour]) -> None:
    files, behaviour = misled
    together = Barrier(8)
    behaviour.error = lambda exchange: hold(together, exchange)
    contents = [f"writer {number}".encode() for number in range(8)]

    def attempt(content: bytes) -> str | None:
        try:
            files.write("commits/0", content)
        except Py4JJavaError as thrown:
            return error_of(thrown)
        return None

    with ThreadPoolExecutor(8) as pool:
        errors = list(pool.map(attempt, contents))
    winner = errors.index(None)
    assert errors == [None if number == winner else FILE_EXISTS for number in range(8)]
    assert files.read("commits/0") == contents[winner]


def hold(together: Barrier, exchange: Exchange) -> None:
    """Let the writes through when all of them have arrived."""
    if exchange.method == "PUT":
        together.wait(timeout=60)


def test_a_create_whose_answer_was_lost_has_succeeded(misled: tuple[Files, Behaviour]) -> None:
    files, behaviour = misled
    behaviour.lose_answer = lambda exchange: len(puts(behaviour)) == 1 and exchange.method == "PUT"
    files.write("commits/0", b"content")
    assert len(puts(behaviour)) > 1, "the client did not try again: the test shows nothing"
    assert all(exchange.conditional for exchange in puts(behaviour))
    assert files.read("commits/0") == b"content"


def test_a_lost_answer_does_not_hide_another_writer(misled: tuple[Files, Behaviour]) -> None:
    files, behaviour = misled
    files.write("commits/0", b"another's")
    behaviour.lose_answer = lambda exchange: len(puts(behaviour)) == 2 and exchange.method == "PUT"
    with pytest.raises(Py4JJavaError) as refused:
        files.write("commits/0", b"ours")
    assert error_of(refused.value) == FILE_EXISTS
    assert files.read("commits/0") == b"another's"


def test_a_create_refused_for_a_conflict_is_tried_again(misled: tuple[Files, Behaviour]) -> None:
    files, behaviour = misled
    behaviour.error = lambda exchange: (
        (409, "ConditionalRequestConflict")
        if exchange.method == "PUT" and len(puts(behaviour)) == 1
        else None
    )
    files.write("commits/0", b"content")
    assert len(puts(behaviour)) == 2
    assert files.read("commits/0") == b"content"


def test_a_file_system_that_cannot_create_conditionally_is_refused(
    jvm: Any, logged: LoggedServer, root: str
) -> None:
    options = s3a_options(logged.server) | {"fs.s3a.create.conditional.enabled": "false"}
    with pytest.raises(Py4JJavaError) as refused:
        Files.open(jvm, root, options)
    assert error_of(refused.value) == "java.io.IOException"
    assert "fs.s3a.create.conditional.enabled" in str(refused.value.java_exception)


def puts(behaviour: Behaviour) -> list[Exchange]:
    return [exchange for exchange in behaviour.seen if exchange.method == "PUT"]
