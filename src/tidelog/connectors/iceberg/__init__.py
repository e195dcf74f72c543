"""Tables of Iceberg, as an exactly-once sink."""

from tidelog.connectors.iceberg.sink import IcebergSink

__all__ = ["IcebergSink"]
