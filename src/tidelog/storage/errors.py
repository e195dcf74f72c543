"""The errors every adapter raises alike, worded once.

Invariant: each names the object with its store's URL, so a message stands on its own.
"""

import errno
from socket import gaierror
from typing import Final

from tidelog.credentials import holds_secret
from tidelog.errors import (
    AccessDeniedError,
    ConditionalPutError,
    ConfigError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StoreFullError,
    StoreUnreachableError,
    too_many_files,
)

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_DENIED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_TOO_MANY: Final = frozenset({errno.EMFILE, errno.ENFILE})
_NO_DIRECTORY: Final = frozenset({errno.EEXIST, errno.ENOTDIR})
_NO_ANSWER: Final = (ConnectionError, TimeoutError, gaierror)
_UNREACHABLE: Final = frozenset({errno.ESTALE, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN})


def object_at(url: str, name: str) -> str:
    """What a message calls the object."""
    return f"object {url.rstrip('/')}/{name}"


def check_content(name: str, data: bytes) -> None:
    """Raise ConfigError for an empty create-once object: S3 clients cannot write it safely."""
    if not data:
        raise ConfigError(
            f"create of {name!r}",
            expected="at least one byte",
            found="no data",
            action="write the author into every create-once object",
        )


def check_url(what: str, url: str) -> None:
    """Raise ConfigError for a URL with a password or a token in it: URLs are stored and shown."""
    if holds_secret(url):
        raise ConfigError(
            f"{what} {url!r}",
            expected="a URL without credentials: it is stored, logged and shown on pages",
            found="a password or a token in it",
            action="take it out, and give credentials by the environment (such as "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), a profile, or open_store(options=...)",
        )


def object_exists(url: str, name: str) -> ObjectExistsError:
    return ObjectExistsError(
        object_at(url, name),
        expected="a free name",
        found="an object",
        action="read it back: it may be your own, written by an attempt whose answer was lost",
    )


def object_not_found(url: str, name: str) -> ObjectNotFoundError:
    return ObjectNotFoundError(
        object_at(url, name),
        expected="an object",
        found="nothing",
        action="check the name, and that nothing else deletes objects under this URL",
    )


def access_denied(what: str, found: str, *, local: bool = False) -> AccessDeniedError:
    of_disk = "check its owner and mode, and that its disk is not mounted read-only"
    return AccessDeniedError(
        what,
        expected="permission to read, write, list and delete",
        found=found,
        action=of_disk if local else "check the credentials and what they allow here",
    )


def store_full(what: str, found: str) -> StoreFullError:
    return StoreFullError(what, found=found, action="free or add space, then continue")


def store_unreachable(what: str, found: str) -> StoreUnreachableError:
    return StoreUnreachableError(
        what,
        expected="an answer",
        found=found,
        action="check the endpoint and the network",
    )


def no_conditional_put(url: str, found: str) -> ConditionalPutError:
    return ConditionalPutError(
        f"store {url}",
        expected="create-if-absent with exactly one winner",
        found=found,
        action="use S3, a local directory or another store that `tidelog doctor` passes",
        retry_safe=False,
    )


def no_directory(what: str) -> StorageError:
    """A directory of the path cannot be made, or is none."""
    return StorageError(
        what,
        expected="a directory in each place of its path before the last",
        found="a file in one of them",
        action="choose another directory, or move that file away",
        retry_safe=False,
    )


def storage_failed(what: str, found: str) -> StorageError:
    return StorageError(what, found=found, action="see the cause; it is not one tidelog knows")


def from_os_error(error: OSError, what: str) -> StorageError:
    """The error for a failed system call or a library's imitation of one."""
    found = error.strerror or str(error) or type(error).__name__
    if error.errno in _FULL:
        return store_full(what, found)
    if error.errno in _TOO_MANY:
        return too_many_files(what, found)
    if error.errno in _DENIED or isinstance(error, PermissionError):
        return access_denied(what, found, local=error.errno in _DENIED)
    if error.errno in _UNREACHABLE or isinstance(error, _NO_ANSWER):
        return store_unreachable(what, found)
    known = error.errno in _NO_DIRECTORY
    return no_directory(what) if known else storage_failed(what, found)
