"""Tables of databases, as exactly-once sinks, and an outbox as a source."""

from tidelog.connectors.sql.outbox import PostgresOutbox
from tidelog.connectors.sql.postgres import Postgres
from tidelog.connectors.sql.sqlite import Sqlite

__all__ = ["Postgres", "PostgresOutbox", "Sqlite"]
