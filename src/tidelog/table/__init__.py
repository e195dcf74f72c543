"""Internal: RocksDB and memory tables."""
