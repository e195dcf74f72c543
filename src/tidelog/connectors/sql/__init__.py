"""Tables of databases, as exactly-once sinks."""

from tidelog.connectors.sql.postgres import Postgres
from tidelog.connectors.sql.sqlite import Sqlite

__all__ = ["Postgres", "Sqlite"]
