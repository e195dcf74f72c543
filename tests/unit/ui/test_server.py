"""The server answers this machine's browser, its own page alone, and two addresses."""

import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.depth import more_in_depth
from tidelog.errors import StoreUnreachableError
from tidelog.ui.server import PageServer, page_server

STRANGE = (b"//[", b"http://[", b"http://[/?now", b"/%00", b"*", b"?now")
PAGE, POLICY = b"<!doctype html>the page", "default-src 'none'"


@pytest.fixture
def server() -> Iterator[PageServer]:
    document = lambda now: b'{"on_demand": true}' if now else b"{}"  # noqa: E731
    with page_server(0, PAGE, POLICY, document) as found:
        serving = threading.Thread(target=found.serve_forever, args=(0.01,))
        serving.start()
        yield found
        found.shutdown()
        serving.join()


def asked(
    server: PageServer, path: str, method: str = "GET", **headers: str
) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, headers=named)
    answer = connection.getresponse()
    found = (answer.status, answer.read(), {k.lower(): v for k, v in answer.getheaders()})
    connection.close()
    return found


@pytest.mark.parametrize(
    ("path", "kind", "body"),
    [
        ("/", "text/html; charset=utf-8", PAGE),
        ("/document.json", "application/json", b"{}"),
        ("/document.json?now", "application/json", b'{"on_demand": true}'),
        ("/document.json?x", "application/json", b"{}"),
    ],
)
def test_it_serves_the_page_and_its_document(
    server: PageServer, path: str, kind: str, body: bytes
) -> None:
    status, data, headers = asked(server, path)
    assert (status, data, headers["content-type"]) == (200, body, kind)
    assert headers["content-security-policy"] == f"{POLICY}; frame-ancestors 'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        *(
            ("GET", path, 404, b"There are / and /document.json.\n")
            for path in ("/x", "/document.json/", "/../etc/passwd")
        ),
        *(
            (method, "/document.json", 405, b"" if method == "HEAD" else b"Only GET.\n")
            for method in ("HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
        ),
    ],
)
def test_there_is_nothing_else_and_nothing_can_be_done_but_reading(
    server: PageServer, method: str, path: str, status: int, said: bytes
) -> None:
    found, data, headers = asked(server, path, method)
    assert (found, data) == (status, said)
    assert headers.get("allow") == ("GET" if status == 405 else None)


@pytest.mark.parametrize("path", ["/", "/document.json", "/x"])
@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "", "[::1]"])
def test_it_is_there_under_its_own_name_alone(server: PageServer, path: str, host: str) -> None:
    assert server.socket.getsockname()[0] == "127.0.0.1"
    status, data, _ = asked(server, path, Host=host.format(port=server.server_port))
    assert (status, data) == (421, f"This page is at {server.url} only.\n".encode())
    assert asked(server, "/", Host=f"localhost:{server.server_port}")[0] == 200


def test_a_browser_leaves_the_port_of_http_out(server: PageServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
    server.server_port = 80
    connection.request("GET", "/", headers={"Host": "127.0.0.1"})
    assert connection.getresponse().status == 200
    connection.close()


@given(
    first=st.one_of(
        st.binary(max_size=80),
        st.sampled_from([b"GET %b HTTP/1.0" % target for target in STRANGE]),
        st.tuples(st.binary(max_size=40), st.binary(max_size=10)).map(
            lambda parts: b"GET /" + parts[0] + b" HTTP/1." + parts[1]
        ),
    ),
    rest=st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=40)), max_size=4),
    named=st.booleans(),
)
@settings(
    max_examples=more_in_depth(100, 5_000),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_request_is_answered_or_dropped_and_the_page_stays(
    server: PageServer,
    capfd: pytest.CaptureFixture[str],
    first: bytes,
    rest: list[tuple[bytes, bytes]],
    named: bool,
) -> None:
    lines = [first, *(b": ".join(pair) for pair in rest)]
    if named:
        lines.insert(1, b"Host: 127.0.0.1:%d" % server.server_port)
    with socket.create_connection(("127.0.0.1", server.server_port)) as client:
        client.sendall(b"\r\n".join([*lines, b"", b""]))
        client.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while client.recv(65_536):
                pass
    assert asked(server, "/")[0] == 200
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("site", "status"),
    [("none", 200), ("same-origin", 200), ("same-site", 403), ("cross-site", 403)],
)
def test_a_page_elsewhere_cannot_even_make_it_read(
    server: PageServer, site: str, status: int
) -> None:
    assert asked(server, "/document.json?now", Sec_Fetch_Site=site)[0] == status
    assert asked(server, "/", Sec_Fetch_Site=site)[0] == 200


def test_an_error_is_an_answer_with_what_to_do_and_a_defect_shows_on_standard_error(
    server: PageServer, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_connection(("127.0.0.1", server.server_port)) as client:
        client.sendall(b"GET / HTTP/1.0\r\n")  # and it goes away

    def unreachable(on_demand: bool) -> bytes:
        raise StoreUnreachableError("store s3://b", found="no answer", action="try again")

    server.document = unreachable
    status, data, _ = asked(server, "/document.json")
    assert status == 503 and b"store s3://b; found no answer. Next: try again" in data
    assert capfd.readouterr().err == ""

    def broken(on_demand: bool) -> bytes:
        raise KeyError("a defect")

    server.document = broken
    with pytest.raises(http.client.RemoteDisconnected):
        asked(server, "/document.json")
    assert "KeyError: 'a defect'" in capfd.readouterr().err
