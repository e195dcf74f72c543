"""Key-encryption keys: where the user's key comes from, and what it wraps.

Invariants: a key is never logged, shown or stored; what names it is an id that tells nothing of it;
a key that is not the right one is told from one that cannot be reached. Sources are written as
`PATH`, `file:PATH`, `env:NAME` or `aws-kms:KEY`, and only this text travels between processes.
"""

import base64
import hashlib
import logging
import os
import stat
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tidelog.credentials import hide
from tidelog.effects import Effects
from tidelog.errors import ConfigError, UnavailableError, optional_library
from tidelog.events import Event
from tidelog.options.kinds import KeyPlace
from tidelog.storage.encryption.sealed import KEY

logger = logging.getLogger(__name__)

_NONCE: Final = 12
_LOCAL: Final = "local:"
_READ_BY_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class Wrapped:
    """A key, encrypted with another one."""

    by: str
    """Which key it takes to open it, such as `local:0123456789abcdef`."""
    data: bytes


class KeySource(Protocol):
    """Key-encryption keys: wraps with the newest one, opens with any it has.

    This is the port for a key management service.
    """

    label: str
    """What messages call it."""

    async def wrap(self, key: bytes, context: str) -> Wrapped:
        """Encrypt a key; only the same `context` opens it."""
        ...

    async def unwrap(self, wrapped: Wrapped, context: str) -> bytes | None:
        """The key; None when it was wrapped with another key, or for another context."""
        ...


def key_source(text: str, effects: Effects) -> KeySource:
    """The source that a text names; nothing is contacted yet, files are read at once.

    Raises ConfigError for a source that cannot be read or holds no key.
    """
    try:
        text = KeyPlace().read(text)
    except ValueError as error:
        raise ConfigError(
            "encryption key",
            expected=KeyPlace().expected,
            found=str(error),
            action="say where the key is; the key itself belongs into a file of its owner alone",
        ) from error
    kind, colon, rest = text.partition(":")
    if colon and kind == "aws-kms":
        with optional_library(f"encryption key {text}", "the library botocore", "s3"):
            # Alone: the library takes a quarter of a second.
            kms = import_module("tidelog.storage.encryption.kms")
        source: KeySource = kms.open_kms(rest, effects)
        return source
    if colon and kind == "env":
        what = f"encryption key in the environment variable {rest}"
        if not os.environ.get(rest):
            raise ConfigError(what, expected="a key", found="nothing", action="set the variable")
        return LocalKeys(_keys_of(os.environ[rest], what), what, effects)
    return _from_file(Path(rest if colon and kind == "file" else text), effects)


def key_line(key: bytes) -> str:
    """A key as a line of a key file."""
    return base64.b64encode(key).decode()


def key_id(key: bytes) -> str:
    """What a key is called; tells nothing of the key."""
    return hashlib.sha256(b"tidelog key id" + key).hexdigest()[:16]


class LocalKeys:
    """Keys that this process has itself, the one for new wraps first."""

    def __init__(self, keys: tuple[bytes, ...], label: str, effects: Effects) -> None:
        self.label = f"{label} with {', '.join(_LOCAL + key_id(key) for key in keys)}"
        self._keys = {_LOCAL + key_id(key): AESGCM(key) for key in keys}
        self._newest = _LOCAL + key_id(keys[0])
        self._effects = effects

    async def wrap(self, key: bytes, context: str) -> Wrapped:
        nonce = self._effects.rng.randbytes(_NONCE)
        sealed = self._keys[self._newest].encrypt(nonce, key, context.encode())
        return Wrapped(self._newest, nonce + sealed)

    async def unwrap(self, wrapped: Wrapped, context: str) -> bytes | None:
        key = self._keys.get(wrapped.by)
        if key is None or len(wrapped.data) <= _NONCE:
            return None
        try:
            return key.decrypt(wrapped.data[:_NONCE], wrapped.data[_NONCE:], context.encode())
        except InvalidTag:
            return None


def _from_file(path: Path, effects: Effects) -> KeySource:
    what = f"encryption key file {path}"
    try:
        text = path.read_text(encoding="ascii")
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as cause:
        raise UnavailableError(
            what,
            expected="a file with a key, which this user can read",
            found=getattr(cause, "strerror", None) or "bytes that are no text",
            action="correct the path; `tidelog key new FILE` makes a key",
        ) from cause
    if mode & _READ_BY_OTHERS:
        Event.KEY_FILE_OPEN.log(logger, path=path, mode=f"{stat.S_IMODE(mode):04o}")
    return LocalKeys(_keys_of(text, what), what, effects)


def _keys_of(text: str, what: str) -> tuple[bytes, ...]:
    """The keys of a text, one in each line that is neither empty nor a comment."""
    lines = [line.strip() for line in text.splitlines()]
    keys = [_key_of(line, what) for line in lines if line and not line.startswith("#")]
    if keys:
        return tuple(keys)
    raise UnavailableError(
        what,
        expected="a line with a key",
        found="none",
        action="make a key with `tidelog key new FILE`, or `openssl rand -base64 32`",
    )


def _key_of(line: str, what: str) -> bytes:
    try:
        key = base64.b64decode(line, validate=True)
    except ValueError:
        key = b""
    if len(key) == KEY:
        hide({"key": line})
        return key
    # The line may be a key with a typing error: it is not shown.
    raise ConfigError(
        what,
        expected=f"{KEY} bytes in base64 per line, which are 44 characters, or # and a comment",
        found=f"a line of {len(line)} characters that is not",
        action="make a key with `tidelog key new FILE`, or `openssl rand -base64 32`",
    )
