"""A PostgreSQL server of the tests' own: in a directory of its own, on a Unix socket."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_USERS = ("postgres", "nobody")


class Server:
    """A running server; every test takes a database of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._databases = 0

    def conninfo(self, database: str = "postgres") -> str:
        return f"host={self._directory} user=tidelog dbname={database}"

    def database(self) -> str:
        """A new database; returns how to connect to it."""
        self._databases += 1
        name = f"test{os.getpid()}_{self._databases}"
        query(self.conninfo(), f"CREATE DATABASE {name}")
        return self.conninfo(name)


def query(conninfo: str, statement: str) -> list[Any]:
    """Run a statement on a connection of its own; returns its rows."""
    with import_module("psycopg").connect(conninfo, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def reason_without() -> str | None:
    """Why there can be no server here; None when there can."""
    if find_spec("psycopg") is None:
        return "the library psycopg is not installed (pip install 'tidelog[postgres]')"
    if _program("initdb") is None:
        return "no PostgreSQL server is installed (apt-get install postgresql)"
    if os.getuid() == 0 and _user() is None:
        return "PostgreSQL does not run as root, and there is no user to run it as"
    return None


@contextmanager
def server() -> Iterator[Server]:
    """Run a server; it and its data are gone afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="tidelog-postgres-"))
    user = _user() if os.getuid() == 0 else None
    if user is not None:
        shutil.chown(directory, user)
    data = directory / "data"
    running: subprocess.Popen[bytes] | None = None
    try:
        create = ["-D", str(data), "-U", "tidelog", "-A", "trust", "-E", "UTF8", "--no-sync"]
        made = subprocess.run(
            [str(_program("initdb")), *create],
            user=user,
            cwd=directory,
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == 0, made.stderr
        # Durability is the machine's business: no test cuts its power.
        settings = {"listen_addresses": "", "unix_socket_directories": directory, "fsync": "off"}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (directory / "log").open("wb") as log:
            running = subprocess.Popen(
                [str(_program("postgres")), "-D", str(data), *options],
                user=user,
                cwd=directory,
                stdout=log,
                stderr=log,
            )
        _wait(directory, running)
        yield Server(directory)
    finally:
        if running is not None:
            running.send_signal(signal.SIGINT)  # does not wait for clients, as SIGTERM does
            running.wait(30)
        shutil.rmtree(directory, ignore_errors=True)


def _wait(directory: Path, running: "subprocess.Popen[bytes]") -> None:
    asking = [str(_program("pg_isready")), "-q", "-h", str(directory), "-U", "tidelog"]
    for _ in range(600):
        if subprocess.run(asking, check=False).returncode == 0:
            return
        try:
            running.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
        break
    raise AssertionError((directory / "log").read_text())


def _program(name: str) -> Path | None:
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = shutil.which(name)
    return installed[-1] if installed else Path(found) if found else None


def _user() -> str | None:
    """Somebody who is not root."""
    for name in _USERS:
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    return None
