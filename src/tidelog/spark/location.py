"""Where a checkpoint is: from the way Spark writes a location to a store URL."""

from typing import Final

_S3: Final = ("s3a://", "s3n://")


def store_url(location: str) -> str:
    """The URL under which `tidelog.storage` opens a Spark checkpoint location.

    Hadoop's s3a:// is s3://, and its file:/path is file:///path; others stay as they are.
    """
    for scheme in _S3:
        if location.startswith(scheme):
            return "s3://" + location.removeprefix(scheme)
    if location.startswith("file:/") and not location.startswith("file://"):
        return "file://" + location.removeprefix("file:")
    return location
