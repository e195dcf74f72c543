"""The PostgreSQL server of the sinks' tests."""

from tests.unit.connectors.sinks.conftest import conninfo, postgres_server

__all__ = ["conninfo", "postgres_server"]
