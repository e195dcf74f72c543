"""What a cloud's refusal means: the errors of `tidelog.errors` for answers over HTTP.

Invariant: the status and the cloud's error code decide, never the exception that a library chose
for them. Only 412, and Azure's 409 that names the object as taken, say that a create has lost; any
other conflict is a trouble that passes.
"""

from typing import Final

from tidelog.errors import ConfigError
from tidelog.storage import errors
from tidelog.storage.s3_refusals import UNSUPPORTED, refused

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
    if status == UNSUPPORTED and creates:
        return errors.no_conditional_put(url, found)
    return refused(status, "NoSuchBucket" if code == _NO_CONTAINER else code, url, what, found)


def wrong_settings(url: str, found: str) -> ConfigError:
    """A cloud's settings that cannot work, whatever the server would say."""
    return ConfigError(
        f"settings for {url}",
        expected="a valid endpoint, region, bucket and options",
        found=found,
        action="correct the storage options or the environment",
    )
