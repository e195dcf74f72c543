"""Tables of databases, as exactly-once sinks, and an outbox as a source."""

from tidelog.connectors.sql.outbox import PostgresOutboxSource
from tidelog.connectors.sql.postgres import PostgresSink
from tidelog.connectors.sql.sqlite import SqliteSink

__all__ = ["PostgresOutboxSource", "PostgresSink", "SqliteSink"]
