"""Directories of files: lines and JSON as sources, part files as an exactly-once sink."""

from tidelog.connectors.files.jsonlines import JsonLines
from tidelog.connectors.files.sink import Files
from tidelog.connectors.files.text import TextFiles

__all__ = ["Files", "JsonLines", "TextFiles"]
