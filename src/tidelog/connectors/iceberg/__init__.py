"""Tables of Iceberg, as an exactly-once sink."""

from tidelog.connectors.iceberg.sink import Iceberg

__all__ = ["Iceberg"]
