"""Which objects a checkpoint consists of, and which of them its commits name."""

import json
import re
from contextlib import closing
from dataclasses import dataclass

from tests.wire.servers import S3Server

_FILES = re.compile(
    r"""metadata
    | (?P<batches>offsets|commits)/(?P<batch>\d+)
    | sources/0/\d+(\.compact)?
    | state/0/_metadata/metadata
    | state/0/\d+/_metadata/schema
    | state/0/\d+/\d+_[0-9a-f-]+\.zip(\.crc)?
    | state/0/\d+/SSTs/.*\.sst(\.crc)?
    | _tidelog/segments/(?P<segment>.+\.seg)
    | _tidelog/index/\d{10}\.json""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Census:
    """What lies below a checkpoint, directory markers left out."""

    batches: dict[str, list[int]]
    """Numbers of the files in `offsets` and in `commits`."""
    segments: set[str]
    named: set[str]
    """Segments that the commits name."""
    unexpected: list[str]
    """Objects that are no part of a checkpoint, temporary files for example."""


def census(server: S3Server, prefix: str) -> Census:
    """Count the objects below `prefix`."""
    found: dict[str, list[int]] = {"offsets": [], "commits": []}
    segments: set[str] = set()
    unexpected: list[str] = []
    for key in _keys(server, prefix):
        match = _FILES.fullmatch(key)
        if match is None:
            unexpected.append(key)
        elif match["segment"]:
            segments.add(match["segment"])
        elif match["batches"]:
            found[match["batches"]].append(int(match["batch"]))
    batches = {directory: sorted(numbers) for directory, numbers in found.items()}
    named = {name for batch in found["commits"] for name in _named(server, prefix, batch)}
    return Census(batches, segments, named, unexpected)


def _keys(server: S3Server, prefix: str) -> list[str]:
    with closing(server.client()) as client:
        pages = client.get_paginator("list_objects_v2").paginate(
            Bucket=server.bucket, Prefix=f"{prefix}/"
        )
        keys = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
    return [key.removeprefix(f"{prefix}/") for key in keys if not key.endswith("/")]


def _named(server: S3Server, prefix: str, batch: int) -> list[str]:
    with closing(server.client()) as client:
        found = client.get_object(Bucket=server.bucket, Key=f"{prefix}/commits/{batch}")
        lines = found["Body"].read().decode().splitlines()
    assert len(lines) == 3, f"commits/{batch} has no index: {lines}"
    return [name for name, _ in json.loads(lines[2])["body"]["segments"]]
