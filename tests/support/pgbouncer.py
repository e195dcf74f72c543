"""PgBouncer in transaction mode before a PostgreSQL server, each transaction in any session."""

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep

PORT = 6432


def reason_without() -> str | None:
    """Why there can be none here; None when there can."""
    return None if shutil.which("pgbouncer") else "no PgBouncer is installed (apt-get install)"


@contextmanager
def pooler(conninfo: str) -> Iterator[str]:
    """How to connect to a database by way of a pooler with two sessions."""
    parts = dict(part.split("=", 1) for part in conninfo.split())
    # A server of PostgreSQL and the pooler run as somebody who is not root.
    user = pwd.getpwnam("postgres").pw_name if os.getuid() == 0 else None
    directory = Path(parts["host"]) / f"pooler-{parts['dbname']}"
    directory.mkdir()
    settings = directory / "pgbouncer.ini"
    settings.write_text(
        f"""[databases]
{parts["dbname"]} = host={parts["host"]} user={parts["user"]}
[pgbouncer]
pool_mode = transaction
default_pool_size = 2
server_round_robin = 1
listen_addr =
unix_socket_dir = {directory}
auth_type = any
ignore_startup_parameters = extra_float_digits
logfile = {directory}/log
pidfile = {directory}/pid
"""
    )
    if user is not None:
        for path in (directory, settings):
            shutil.chown(path, user)
    running = subprocess.Popen(["pgbouncer", "-q", str(settings)], user=user, cwd=directory)
    try:
        address = directory / f".s.PGSQL.{PORT}"
        while not _answers(address):
            assert running.poll() is None, (directory / "log").read_text()
            sleep(0.02)
        yield f"host={directory} port={PORT} user={parts['user']} dbname={parts['dbname']}"
    finally:
        running.terminate()
        running.wait(30)


def _answers(address: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as line:
        return line.connect_ex(str(address)) == 0
