"""Directories of files: lines, JSON and Parquet as sources, part files as an exactly-once sink."""

from tidelog.connectors.files.jsonlines import JsonLines
from tidelog.connectors.files.parquet import ParquetFiles
from tidelog.connectors.files.sink import Files
from tidelog.connectors.files.text import TextFiles

__all__ = ["Files", "JsonLines", "ParquetFiles", "TextFiles"]
