"""How large manifests and descriptors are.

The figures are means of documents as this release writes them, which a test compares: numbers in
them have more or fewer digits, and names differ.
"""

from typing import Final

_MANIFEST: Final = 477
"""Bytes of a manifest with a source and an operator without subtasks."""
_SUBTASK: Final = 254
_LOG_RANGE: Final = 89
_DESCRIPTOR: Final = 164
_SHARED_FILE: Final = 139
_BASE64: Final = 4 / 3


def manifest_bytes(subtasks: float, log_ranges: float, inline_bytes: float) -> float:
    """A checkpoint's manifest with so many subtasks and log ranges, and blocks inline."""
    return _MANIFEST + _SUBTASK * subtasks + _LOG_RANGE * log_ranges + _BASE64 * inline_bytes


def descriptor_bytes(files: float, private_bytes: float) -> float:
    """A descriptor that names shared files and holds private ones."""
    return _DESCRIPTOR + _SHARED_FILE * files + _BASE64 * private_bytes
