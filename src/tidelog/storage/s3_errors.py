"""What an S3 request's failure means.

Invariant: the HTTP status and S3's error code decide, never the Python exception that a library
chose for them; only a failure without an answer is judged by its class.
"""

from collections.abc import Mapping
from typing import Any, Final

from aiohttp import ClientError as ConnectionLost
from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from tidelog.errors import ConfigError
from tidelog.storage import errors
from tidelog.storage.s3_refusals import UNSUPPORTED, refused

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
_ABSENT: Final = frozenset({"NoSuchKey", "NoSuchVersion", "NotFound", "404", ""})


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
    if status == 404 and code in _ABSENT:
        return errors.object_not_found(url, name)
    if status == 416:
        return EmptyRangeError()
    if status == 412:
        return errors.object_exists(url, name)
    if status == UNSUPPORTED and creates:
        return errors.no_conditional_put(url, found)
    return refused(status, code, url, what, found)


def _description(response: Mapping[str, Any], status: int, code: str) -> str:
    message = response.get("Error", {}).get("Message", "")
    return f"HTTP {status} {code}: {message}".rstrip(": ")
