"""Directories of files: lines, JSON and Parquet as sources, part files as an exactly-once sink."""
