"""Buckets with Object Lock refuse a write without a checksum: every kind of write has one."""

import base64
import hashlib
import uuid
from contextlib import closing

import pytest

from tests.unit.storage.conformance import opened
from tests.wire.proxy import Behaviour, proxy
from tests.wire.servers import S3Server
from tidelog import open_store
from tidelog.storage.config import S3Client

PART = 16 << 20


@pytest.fixture(params=["ministack", "versitygw"])
def locked(request: pytest.FixtureRequest) -> tuple[S3Server, str]:
    """A server and its bucket in which each object is retained for a day.

    Not moto, which asks for a header that S3 does not: x-amz-sdk-checksum-algorithm.
    """
    server: S3Server = request.getfixturevalue(request.param)
    bucket = f"locked-{uuid.uuid4().hex}"
    rule = {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 1}}
    with closing(server.client()) as client:
        client.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
        client.put_object_lock_configuration(
            Bucket=bucket, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": rule}
        )
    return server, bucket


async def test_every_write_to_a_bucket_with_object_lock_has_a_checksum(
    locked: tuple[S3Server, str], s3_client: S3Client, behaviour: Behaviour
) -> None:
    server, bucket = locked
    parts = [bytes([number]) * PART for number in range(3)]
    contents = {"put": b"a", "empty": b"", "parts": b"".join(parts)}
    with proxy(server.endpoint, behaviour) as endpoint:
        options = {**server.options, "endpoint_url": endpoint}
        if s3_client == "obstore":
            options["multipart_above"] = PART
        else:
            parts = [b"".join(parts)]
        async with opened(lambda: open_store(f"s3://{bucket}/store", options=options)) as store:
            await store.create("created", b"b")
            for name, data in contents.items():
                await store.put(name, data)
            assert await store.get("created") == b"b"
            for name, data in contents.items():
                assert await store.get(name) == data
    written = [exchange.checksum for exchange in behaviour.seen if exchange.method == "PUT"]
    expected = [hashlib.sha256(data).digest() for data in (b"a", b"", b"b", *parts)]
    assert sorted(map(base64.b64decode, written)) == sorted(expected)
