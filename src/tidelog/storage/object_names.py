"""Every object name: built here, parsed here, nowhere else.

Invariants: names of one kind sort by the numbers in them; a parser answers None for a name it
did not build, so foreign objects are never mistaken for ours.

    checkpoints/<slot>.json
    segments/<generation>-<process>-<counter>.seg
    tables/<generation>/<label>.sst
    materializations/<generation>/<operator>-<subtask>-<id>.json
    probe/<token>/<leaf>
    log-store.json, log-of.json
    keys/<number>.json
    application.json, partitions/<partition>/<names of a store>
"""

import re
from typing import Final

from tidelog.errors import ConfigError, InvariantError
from tidelog.ids import CheckpointId, Generation, MaterializationId, Slot

CHECKPOINTS: Final = "checkpoints/"
SEGMENTS: Final = "segments/"
TABLES: Final = "tables/"
MATERIALIZATIONS: Final = "materializations/"
DATA: Final = (SEGMENTS, TABLES, MATERIALIZATIONS)
PROBE: Final = "probe/"
LOG_STORE: Final = "log-store.json"
"""Where the log of a store is, when it is not in the store itself."""
LOG_OF: Final = "log-of.json"
"""Whose log is in a store."""

KEYS: Final = "keys/"
"""The keys of an encrypted store; the only objects of it that are not encrypted."""

APPLICATION: Final = "application.json"
"""What holds for all partitions of an application, above the stores of these."""
PARTITIONS: Final = "partitions/"
MOST_PARTITIONS: Final = 100_000
"""One more than the highest number of a partition can be."""

_SLOT_DIGITS: Final = 8
_COUNTER_DIGITS: Final = 10

_LABEL: Final = r"[A-Za-z0-9_.-]+"
_SLOT: Final = r"(\d{8}|[a-z]\d{9,})"
_COUNTER: Final = r"(?:\d{10}|[a-z]\d{11,})"
_IS_LABEL: Final = re.compile(_LABEL)
_CHECKPOINT_NAME: Final = re.compile(rf"{CHECKPOINTS}{_SLOT}\.json")
_KEYS_NAME: Final = re.compile(rf"{KEYS}{_SLOT}\.json")
_GENERATION_NAMES: Final = (
    re.compile(rf"{SEGMENTS}{_SLOT}-{_LABEL}-{_COUNTER}\.seg"),
    re.compile(rf"{TABLES}{_SLOT}/{_LABEL}\.sst"),
    re.compile(rf"{MATERIALIZATIONS}{_SLOT}/{_LABEL}-\d+-\d+\.json"),
)
_HASHED_NAME: Final = re.compile(rf"{TABLES}\w+/([0-9a-f]{{32}})-[\w.-]+\.sst", re.ASCII)
_PARTITION_NAME: Final = re.compile(rf"{PARTITIONS}(\d{{5}})/.+")
_FORBIDDEN_PARTS: Final = frozenset({"", ".", ".."})


def checkpoint(slot: Slot) -> str:
    """Name of a slot's entry."""
    return f"{CHECKPOINTS}{_padded(slot)}.json"


def segment(generation: Generation, process: str, counter: int) -> str:
    """Name of the `counter`-th segment a process uploads; raises ConfigError for a bad label."""
    author = f"{_padded(generation)}-{_label('process', process)}"
    return f"{SEGMENTS}{author}-{_padded(counter, _COUNTER_DIGITS)}.seg"


def savepoint_process(checkpoint: CheckpointId, worker: int = 0) -> str:
    """The process in the names of segments that hold the rows of a canonical savepoint."""
    return f"sp-{checkpoint}-{worker}" if worker else f"sp-{checkpoint}"


def table_file(generation: Generation, label: str) -> str:
    """Name of a table file, shared by all materializations of its subtask that use it."""
    return f"{TABLES}{_padded(generation)}/{_label('table file', label)}.sst"


def materialization(
    generation: Generation, operator: str, subtask: int, materialization_id: MaterializationId
) -> str:
    """Name of one materialization's descriptor; raises ConfigError for a bad operator id."""
    leaf = f"{_label('operator id', operator)}-{subtask}-{materialization_id}.json"
    return f"{MATERIALIZATIONS}{_padded(generation)}/{leaf}"


def probe(token: str, leaf: str) -> str:
    """Name of an object `tidelog store check` writes and removes."""
    return f"{PROBE}{_label('probe token', token)}/{leaf}"


def partition_path(partition: int) -> str:
    """Where the store of a partition is, below the URL of its application."""
    return f"{PARTITIONS}{partition:05}"


def partition_of(name: str) -> int | None:
    """The partition whose store an object is in; None for any other name."""
    match = _PARTITION_NAME.fullmatch(name)
    return int(match[1]) if match else None


def key_document(number: int) -> str:
    """Name of the document with the keys of a store; the greatest number counts."""
    return f"{KEYS}{_padded(number)}.json"


def key_document_number(name: str) -> int | None:
    """The number in the name of a document with keys; None for any other name."""
    match = _KEYS_NAME.fullmatch(name)
    return _number(match[1]) if match else None


def slot_of(name: str) -> Slot | None:
    """The slot a checkpoint name stands for; None for any other name."""
    match = _CHECKPOINT_NAME.fullmatch(name)
    return Slot(_number(match[1])) if match else None


def generation_of(name: str) -> Generation | None:
    """The generation that wrote a segment, table file or descriptor; None for any other name."""
    for pattern in _GENERATION_NAMES:
        match = pattern.fullmatch(name)
        if match:
            return Generation(_number(match[1]))
    return None


def content_hash_of(name: str) -> str | None:
    """The hash in the name of a table file, which its content must have; None for others."""
    match = _HASHED_NAME.fullmatch(name)
    return match[1] if match else None


def check_name(name: str) -> str:
    """Return `name` if the port allows it, else raise ConfigError."""
    if name.isascii() and name.isprintable() and _FORBIDDEN_PARTS.isdisjoint(name.split("/")):
        return name
    raise ConfigError(
        f"object name {name!r}",
        expected="printable ASCII parts joined by '/', none of them empty, '.' or '..'",
        action="build object names with tidelog.storage.object_names",
    )


def _padded(number: int, digits: int = _SLOT_DIGITS) -> str:
    """Decimal digits that sort as the numbers do, also past the padding.

    A number too long for its padding gets a letter that grows with its length in front: letters
    sort after digits, so 99999999 < a100000000 < b1000000000.
    """
    if number < 0:
        raise InvariantError(
            f"number {number} in an object name",
            expected="0 or more",
            action="report this as a bug of tidelog",
        )
    text = f"{number:0{digits}d}"
    excess = len(text) - digits
    return text if excess == 0 else f"{chr(ord('a') + excess - 1)}{text}"


def _number(text: str) -> int:
    return int(text.lstrip("abcdefghijklmnopqrstuvwxyz"))


def check_operator(name: str) -> None:
    """Raises ConfigError for a name that objects cannot bear."""
    _label("operator id", name)


def _label(what: str, label: str) -> str:
    if isinstance(label, str) and _IS_LABEL.fullmatch(label):
        return label
    raise ConfigError(
        f"{what} {label!r}",
        expected="one or more of A-Z a-z 0-9 _ . -",
        action=f"choose another {what}",
    )
