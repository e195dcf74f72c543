"""Each option of a cloud arrives where the cloud looks for it."""

import asyncio
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.unit.storage.conformance import opened
from tests.wire.calls import IMPATIENT
from tests.wire.proxy import QuietHandler, serving
from tests.wire.servers import CloudServer, S3Server
from tidelog import StoreUnreachableError, open_store
from tidelog.storage.config import S3Client


@dataclass(frozen=True)
class Asked:
    """What a client sent in a request."""

    method: str
    path: str
    headers: dict[str, str]
    """By their names in small letters."""
    body: bytes


@contextmanager
def recorder(asked: list[Asked], certificate: Path | None = None) -> Iterator[str]:
    """Run it and give its endpoint; `certificate` has key and certificate of one that has TLS."""

    class Handler(QuietHandler):
        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked.append(Asked(self.command, self.path, headers, body))
            self.send_response_only(200)
            self.send_header("ETag", '"1"')
            answer = b"{}" if self.command == "POST" else b""
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_PUT = do_POST = _handle

    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
    with serving(Handler, context) as endpoint:
        yield endpoint


CREDENTIALS: dict[str, dict[str, Any]] = {
    "s3": {"key": "writer", "secret": "sesame-open", "region": "eu-central-1"},
    "gs": {"token": "anon"},
    "az": {"account_name": "account", "account_key": "c2VzYW1lLW9wZW4="},
}


@pytest.fixture(params=["s3", "s3 by s3fs", "gs", "az"])
def scheme(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each cloud in turn, S3 by both of its clients."""
    scheme, _, client = request.param.partition(" by ")
    if client:
        monkeypatch.setenv("TIDELOG__STORAGE__S3__CLIENT", client)
    return str(scheme)


def write(url: str, options: dict[str, Any]) -> None:
    async def main() -> None:
        given = {**CREDENTIALS[url.partition("://")[0]], **options}
        opener = partial(open_store, url, policy=IMPATIENT, options=given)
        async with opened(opener) as store:
            await store.put("name", b"x")

    asyncio.run(main())


def asked_by(url: str, options: dict[str, Any]) -> Asked:
    """The one request of a write with these options."""
    asked: list[Asked] = []
    with recorder(asked) as endpoint:
        write(url, {"endpoint_url": endpoint, **options})
    assert len(asked) == 1
    return asked[0]


@pytest.mark.parametrize(
    ("options", "headers"),
    [
        ({"storage_class": "STANDARD_IA"}, {"x-amz-storage-class": "STANDARD_IA"}),
        ({"server_side_encryption": "AES256"}, {"x-amz-server-side-encryption": "AES256"}),
        (
            {"kms_key": "key-1"},
            {
                "x-amz-server-side-encryption": "aws:kms",
                "x-amz-server-side-encryption-aws-kms-key-id": "key-1",
            },
        ),
        ({"request_payer": "requester"}, {"x-amz-request-payer": "requester"}),
    ],
)
def test_an_option_of_s3_is_in_the_request_and_signed(
    s3_client: S3Client, options: dict[str, Any], headers: dict[str, str]
) -> None:
    asked = asked_by("s3://bucket/prefix", options)
    assert {name: asked.headers.get(name) for name in headers} == headers
    signed = asked.headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0]
    assert headers.keys() <= set(signed.split(";"))
    assert "/eu-central-1/s3/" in asked.headers["authorization"]


def test_options_of_google_cloud_are_in_the_request() -> None:
    options = {"storage_class": "NEARLINE", "kms_key": "projects/p/key", "request_payer": "payer"}
    asked = asked_by("gs://bucket/prefix", options)
    assert "kmsKeyName=projects/p/key" in asked.path.replace("%2F", "/")
    assert "userProject=payer" in asked.path
    assert b'"storageClass": "NEARLINE"' in asked.body


def test_options_of_azure_are_in_the_request() -> None:
    asked = asked_by("az://container/p", {"storage_class": "Cool", "encryption_scope": "scope-1"})
    assert asked.headers["x-ms-access-tier"] == "Cool"
    assert asked.headers["x-ms-encryption-scope"] == "scope-1"


def test_requests_go_through_a_proxy(scheme: str) -> None:
    asked: list[Asked] = []
    with recorder(asked) as endpoint:
        options = {"endpoint_url": "http://store.invalid", "proxy": endpoint}
        write(f"{scheme}://bucket/prefix", options)
    assert [request.headers["host"] for request in asked] == ["store.invalid"]


@dataclass(frozen=True)
class Authority:
    """A certificate authority that only who is told trusts, and a server that it vouches for."""

    certificates: Path
    server: Path


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    at = tmp_path_factory.mktemp("tls")
    kind = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30"]

    def made(name: str, *options: str) -> Path:
        files = ["-keyout", f"{at / name}.key", "-out", f"{at / name}.pem"]
        command = ["openssl", "req", *kind, "-subj", f"/CN={name}", *files, *options]
        subprocess.run(command, check=True, capture_output=True)
        return at / f"{name}.pem"

    ca = made("ca")
    signed = ["-CA", str(ca), "-CAkey", str(ca.with_suffix(".key"))]
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    server = made("server", *signed, *names, "-addext", "basicConstraints=critical,CA:FALSE")
    server.write_bytes(server.read_bytes() + server.with_suffix(".key").read_bytes())
    return Authority(ca, server)


def test_a_certificate_is_trusted_when_its_authority_is_in_the_file(
    scheme: str, authority: Authority
) -> None:
    asked: list[Asked] = []
    url = f"{scheme}://bucket/prefix"
    with recorder(asked, authority.server) as endpoint:
        with pytest.raises(StoreUnreachableError, match=r"(?i)certificate|UnknownIssuer"):
            write(url, {"endpoint_url": endpoint})
        assert asked == []
        write(url, {"endpoint_url": endpoint, "ca_file": str(authority.certificates)})
    assert len(asked) == 1


@pytest.mark.parametrize("server", ["versitygw", "azurite"])
async def test_an_object_above_the_limit_is_written_in_parts_and_read_whole(
    server: str, request: pytest.FixtureRequest
) -> None:
    running: S3Server | CloudServer = request.getfixturevalue(server)
    data = bytes(range(256)) * (40 * 2**20 // 256)
    options = {**running.options, "multipart_above": 2**20}
    opener = partial(open_store, running.url("in-parts"), options=options)
    async with opened(opener) as store:
        await store.put("tables/large.sst", data)
        assert (await store.head("tables/large.sst")).size == len(data)
        assert await store.get("tables/large.sst") == data
        assert await store.get("tables/large.sst", 17 * 2**20, 5) == data[:5]
