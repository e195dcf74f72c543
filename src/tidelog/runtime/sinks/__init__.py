"""Sinks that come with the embedded runtime.

`Files`, `Sqlite` and `Postgres` are exactly once; `Stdout` and `Callback` are at least once.
"""

from tidelog.runtime.sinks.callable import Callback
from tidelog.runtime.sinks.files import Files
from tidelog.runtime.sinks.postgres import Postgres
from tidelog.runtime.sinks.sqlite import Sqlite
from tidelog.runtime.sinks.stdout import Stdout

__all__ = ["Callback", "Files", "Postgres", "Sqlite", "Stdout"]
