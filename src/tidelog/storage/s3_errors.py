"""What an S3 request's failure means.

Invariant: the HTTP status and S3's error code decide, never the Python exception that a library
chose for them; only a failure without an answer is judged by its class.
"""

from collections.abc import Mapping
from typing import Any, Final

from aiohttp import ClientError as ConnectionLost
from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from tidelog.errors import ConfigError, TidelogError
from tidelog.storage import errors

_NO_CREDENTIALS: Final = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.CredentialRetrievalError,
)
_NO_ANSWER: Final = (
    boto.ConnectionError,
    boto.HTTPClientError,
    boto.IncompleteReadError,
    ResponseParserError,
    ConnectionLost,
    ConnectionError,
    TimeoutError,
)
_WRONG_REGION: Final = frozenset(
    {"PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed"}
)
_ABSENT: Final = frozenset({"NoSuchKey", "NoSuchVersion", "NotFound", "404", ""})
_UNKNOWN_USER: Final = "XAdminUserNotFound"
"""What versitygw answers, as a 404, to an access key that it does not know."""
_DENIED: Final = frozenset({401, 403})
_TRANSIENT: Final = frozenset({200, 408, 409, 425, 429})
"""200 with an error inside is how S3 reports a failure after it began to answer."""
_UNSUPPORTED: Final = 501
_FULL: Final = frozenset({507})


class EmptyRangeError(Exception):
    """The requested range starts at or past the end of the object."""


def translated(error: Exception, url: str, name: str, *, creates: bool) -> Exception:
    """The error of `tidelog.errors` to raise, or EmptyRangeError, for a failed request.

    `creates` says that the request was a create-if-absent.
    """
    what = errors.object_at(url, name)
    response = _response(error)
    if response is not None:
        return _from_response(response, url, name, creates=creates)
    if isinstance(error, _NO_CREDENTIALS):
        return errors.access_denied(what, str(error))
    if isinstance(error, _NO_ANSWER):
        return errors.store_unreachable(what, str(error) or type(error).__name__)
    if isinstance(error, boto.BotoCoreError | ValueError | TypeError):
        return ConfigError(
            f"S3 settings for {url}",
            expected="a valid endpoint, region, bucket and options",
            found=str(error),
            action="correct the storage options or the AWS environment",
        )
    return errors.storage_failed(what, f"{type(error).__name__}: {error}")


def _response(error: BaseException | None) -> Mapping[str, Any] | None:
    # s3fs raises an OSError of its own choice from the library's ClientError.
    while error is not None:
        if isinstance(error, boto.ClientError):
            response: Mapping[str, Any] = error.response
            return response
        error = error.__cause__
    return None


def _from_response(response: Mapping[str, Any], url: str, name: str, *, creates: bool) -> Exception:
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    code = str(response.get("Error", {}).get("Code", ""))
    what, found = errors.object_at(url, name), _description(response, status, code)
    if code == "NoSuchBucket":
        return _no_bucket(url, found)
    if status == 404 and code in _ABSENT:
        return errors.object_not_found(url, name)
    if status == 416:
        return EmptyRangeError()
    if status == 412:
        return errors.object_exists(url, name)
    if status == _UNSUPPORTED and creates:
        return errors.no_conditional_put(url, found)
    return _refused(status, code, url, what, found)


def _refused(status: int, code: str, url: str, what: str, found: str) -> TidelogError:
    if code in _WRONG_REGION:
        return ConfigError(
            f"region of {url}", expected="the bucket's own", found=found, action="set AWS_REGION"
        )
    if status in _DENIED or code == _UNKNOWN_USER:
        return errors.access_denied(what, found)
    if status in _FULL:
        return errors.store_full(what, found)
    if status in _TRANSIENT or (status >= 500 and status != _UNSUPPORTED):
        return errors.store_unreachable(what, found)
    return errors.storage_failed(what, found)


def _no_bucket(url: str, found: str) -> ConfigError:
    return ConfigError(
        f"store {url}",
        expected="an existing bucket",
        found=found,
        action="create the bucket or correct the URL or endpoint",
    )


def _description(response: Mapping[str, Any], status: int, code: str) -> str:
    message = response.get("Error", {}).get("Message", "")
    return f"HTTP {status} {code}: {message}".rstrip(": ")
