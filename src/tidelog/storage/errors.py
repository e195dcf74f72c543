"""The errors every adapter raises alike, worded once: for system calls and for answers over HTTP.

Invariants: each names the object with its store's URL, so a message stands on its own. Of a
cloud's refusal the status and the error code decide, never the exception that a library chose for
them. Only 412, and Azure's 409 that names the object as taken, say that a create has lost; any
other conflict is a trouble that passes. The answer to a HEAD has no code; its status decides.
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
    TidelogError,
    UnavailableError,
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


def access_denied(what: str, reason: str, *, local: bool = False) -> AccessDeniedError:
    of_disk = "check its owner and mode, and that its disk is not mounted read-only"
    return AccessDeniedError(
        what,
        expected="permission to read, write, list and delete",
        found=reason,
        action=of_disk if local else "check the credentials and what they allow here",
    )


def store_full(what: str, reason: str) -> StoreFullError:
    return StoreFullError(
        what, expected="room for it", found=reason, action="free or add space, then continue"
    )


def store_unreachable(what: str, reason: str) -> StoreUnreachableError:
    return StoreUnreachableError(
        what, expected="an answer", found=reason, action="check the endpoint and the network"
    )


def no_conditional_put(url: str, found: str) -> ConditionalPutError:
    return ConditionalPutError(
        f"store {url}",
        expected="create-if-absent with exactly one winner",
        found=found,
        action="use S3, a local directory or another store that `tidelog store check` passes",
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


def storage_failed(what: str, reason: str) -> StorageError:
    return StorageError(
        what,
        expected="an answer that tidelog knows",
        found=reason,
        action="see the cause, and start again",
    )


def from_os_error(error: OSError, what: str) -> StorageError:
    """The error for a failed system call or a library's imitation of one."""
    reason = error.strerror or str(error) or type(error).__name__
    if error.errno in _FULL:
        return store_full(what, reason)
    if error.errno in _TOO_MANY:
        return too_many_files(what, reason)
    if error.errno in _DENIED or isinstance(error, PermissionError):
        return access_denied(what, reason, local=error.errno in _DENIED)
    if error.errno in _UNREACHABLE or isinstance(error, _NO_ANSWER):
        return store_unreachable(what, reason)
    if error.errno in _NO_DIRECTORY:
        return no_directory(what)
    return storage_failed(what, reason)


_UNSUPPORTED: Final = 501
_NO_BUCKET: Final = frozenset({"NoSuchBucket", "ContainerNotFound"})
_WRONG_REGION: Final = frozenset(
    {"PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed"}
)
_MOVED: Final = frozenset({301, 307})
_STATUS_DENIED: Final = frozenset({401, 403})
_OF_HEAD: Final = "400"
"""What stands for the code of a HEAD that was refused as malformed: its signature, most often."""
_TRANSIENT: Final = frozenset({200, 408, 409, 425, 429})
"""200 with an error inside is how S3 reports a failure after it began to answer."""
_STATUS_FULL: Final = 507
_ABSENT: Final = frozenset(
    {"NoSuchKey", "NoSuchVersion", "NotFound", "BlobNotFound", "ResourceNotFound", "404", ""}
)
_TAKEN: Final = "BlobAlreadyExists"

_RENEW: Final = (
    "get new credentials and start again: keys in variables or files are read once, at the start; "
    "those of a role, an instance or a credential_process are renewed meanwhile"
)
_CREDENTIALS: Final = {
    "ExpiredToken": ("credentials that have not expired", _RENEW),
    "ExpiredTokenException": ("credentials that have not expired", _RENEW),
    "TokenRefreshRequired": ("credentials that have not expired", _RENEW),
    "InvalidToken": (
        "a session token that belongs to the access key",
        "correct AWS_SESSION_TOKEN, or unset it beside keys that do not expire",
    ),
    "InvalidAccessKeyId": (
        "an access key that the server knows",
        "correct AWS_ACCESS_KEY_ID, the profile or the endpoint",
    ),
    # versitygw, as a 404.
    "XAdminUserNotFound": (
        "an access key that the server knows",
        "correct AWS_ACCESS_KEY_ID: these credentials are not of this server",
    ),
    "SignatureDoesNotMatch": (
        "the secret key of this access key",
        "correct AWS_SECRET_ACCESS_KEY: these credentials do not belong together",
    ),
    "RequestTimeTooSkewed": (
        "a clock that differs from the server's by less than 15 minutes",
        "set this machine's clock (NTP); the credentials may be right",
    ),
}
"""What was expected and what to do, by the error code of a request whose signature was refused."""


def closed(url: str) -> StorageError:
    """A request comes after the store was closed."""
    return storage_failed(f"store {url}", "it was closed")


def _refused(status: int, code: str, url: str, what: str, answer: str) -> TidelogError:
    """The error for the answer with this HTTP status and S3's error code, if it has one.

    `what` names the object, `url` its store, `answer` is what messages quote of it.
    """
    if code in _NO_BUCKET:
        return UnavailableError(
            f"store {url}",
            expected="an existing bucket",
            found=answer,
            action="create the bucket or correct the URL or endpoint",
        )
    if code in _WRONG_REGION or status in _MOVED:
        return ConfigError(
            f"region of {url}",
            expected="the bucket's own",
            found=answer,
            action="set AWS_DEFAULT_REGION to it, or the region of the profile",
        )
    if code in _CREDENTIALS or status in _STATUS_DENIED or (status == 400 and code == _OF_HEAD):
        return _denied(code, what, answer)
    if status == _STATUS_FULL:
        return store_full(what, answer)
    if status in _TRANSIENT or (status >= 500 and status != _UNSUPPORTED):
        return store_unreachable(what, answer)
    return storage_failed(what, answer)


def _denied(code: str, what: str, answer: str) -> AccessDeniedError:
    if code not in _CREDENTIALS:
        return access_denied(what, answer)
    expected, action = _CREDENTIALS[code]
    return AccessDeniedError(what, expected=expected, found=answer, action=action)


class EmptyRangeError(Exception):
    """The requested range starts at or past the end of the object."""


def from_answer(
    status: int, code: str, message: str, url: str, name: str, *, creates: bool
) -> Exception:
    """The error of `tidelog.errors` to raise, or EmptyRangeError, for a request that was refused.

    `creates` says that the request was a create-if-absent.
    """
    what, answer = object_at(url, name), f"HTTP {status} {code}: {message}".rstrip(": ")
    if status == 404 and code in _ABSENT:
        return object_not_found(url, name)
    if status == 416:
        return EmptyRangeError()
    if status == 412 or code == _TAKEN:
        return object_exists(url, name)
    if status == _UNSUPPORTED and creates:
        return no_conditional_put(url, answer)
    return _refused(status, code, url, what, answer)


def wrong_settings(url: str, problem: str) -> ConfigError:
    """A cloud's settings that cannot work, whatever the server would say."""
    return ConfigError(
        f"settings for {url}",
        expected="a valid endpoint, region, bucket and options",
        found=problem,
        action="correct the storage options or the environment",
    )
