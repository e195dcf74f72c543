"""What a cloud's refusal means and what to do: errors of `tidelog.errors` for answers over HTTP.

Invariant: the status and the cloud's error code decide, never the exception that a library chose
for them. Only 412, and Azure's 409 that names the object as taken, say that a create has lost; any
other conflict is a trouble that passes. The answer to a HEAD has no code; its status decides.
"""

from typing import Final

from tidelog.errors import AccessDeniedError, ConfigError, TidelogError
from tidelog.storage import errors

_UNSUPPORTED: Final = 501

_WRONG_REGION: Final = frozenset(
    {"PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed"}
)
_MOVED: Final = frozenset({301, 307})
_DENIED: Final = frozenset({401, 403})
_OF_HEAD: Final = "400"
"""What stands for the code of a HEAD that was refused as malformed: its signature, most often."""
_TRANSIENT: Final = frozenset({200, 408, 409, 425, 429})
"""200 with an error inside is how S3 reports a failure after it began to answer."""
_FULL: Final = 507

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


def _refused(status: int, code: str, url: str, what: str, found: str) -> TidelogError:
    """The error for the answer with this HTTP status and S3's error code, if it has one.

    `what` names the object, `url` its store, `found` is the answer as messages have it.
    """
    if code == "NoSuchBucket":
        return ConfigError(
            f"store {url}",
            expected="an existing bucket",
            found=found,
            action="create the bucket or correct the URL or endpoint",
        )
    if code in _WRONG_REGION or status in _MOVED:
        return ConfigError(
            f"region of {url}",
            expected="the bucket's own",
            found=found,
            action="set AWS_DEFAULT_REGION to it, or the region of the profile",
        )
    if code in _CREDENTIALS or status in _DENIED or (status == 400 and code == _OF_HEAD):
        return _denied(code, what, found)
    if status == _FULL:
        return errors.store_full(what, found)
    if status in _TRANSIENT or (status >= 500 and status != _UNSUPPORTED):
        return errors.store_unreachable(what, found)
    return errors.storage_failed(what, found)


def _denied(code: str, what: str, found: str) -> AccessDeniedError:
    if code not in _CREDENTIALS:
        return errors.access_denied(what, found)
    expected, action = _CREDENTIALS[code]
    return AccessDeniedError(what, expected=expected, found=found, action=action)


_NO_CONTAINER: Final = "ContainerNotFound"
_ABSENT: Final = frozenset(
    {"NoSuchKey", "NoSuchVersion", "NotFound", "BlobNotFound", "ResourceNotFound", "404", ""}
)
_TAKEN: Final = frozenset({"BlobAlreadyExists"})


class EmptyRangeError(Exception):
    """The requested range starts at or past the end of the object."""


def from_answer(
    status: int, code: str, message: str, url: str, name: str, *, creates: bool
) -> Exception:
    """The error of `tidelog.errors` to raise, or EmptyRangeError, for a request that was refused.

    `creates` says that the request was a create-if-absent.
    """
    what, found = errors.object_at(url, name), f"HTTP {status} {code}: {message}".rstrip(": ")
    if status == 404 and code in _ABSENT:
        return errors.object_not_found(url, name)
    if status == 416:
        return EmptyRangeError()
    if status == 412 or code in _TAKEN:
        return errors.object_exists(url, name)
    if status == _UNSUPPORTED and creates:
        return errors.no_conditional_put(url, found)
    return _refused(status, "NoSuchBucket" if code == _NO_CONTAINER else code, url, what, found)


def wrong_settings(url: str, found: str) -> ConfigError:
    """A cloud's settings that cannot work, whatever the server would say."""
    return ConfigError(
        f"settings for {url}",
        expected="a valid endpoint, region, bucket and options",
        found=found,
        action="correct the storage options or the environment",
    )
