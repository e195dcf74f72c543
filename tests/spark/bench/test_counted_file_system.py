"""The file system of the Spark benchmarks behaves as the Python model, and counts alike."""

import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError

from tests.golden.golden_latencies import golden_bits
from tidelog.spark.plugin.toolchain import find_java, find_spark
from tidelog_bench.spark.job import SCHEME, benchmark_jar, counted_settings
from tidelog_bench.store import NONE, Kind, LatencyProfile, Traffic, daily, latency_ms

MB = 1_000_000


@pytest.fixture(scope="module")
def jvm(spark_or_skip: None) -> Iterator[Any]:
    """A JVM with Spark's jars on its path, and no Spark in it."""
    spark = find_spark()
    gateway = JavaGateway.launch_gateway(
        jarpath=str(next((spark.home / "jars").glob("py4j-*.jar"))),
        classpath=f"{spark.classpath}:{benchmark_jar()}",
        javaopts=["-Xmx256m"],
        java_path=str(find_java()),
        die_on_exit=True,
    )
    yield gateway.jvm
    gateway.shutdown()


class Files:
    """A `counted://` file system below a directory."""

    def __init__(self, jvm: Any, root: Path, profile: LatencyProfile) -> None:
        conf = jvm.org.apache.hadoop.conf.Configuration(False)
        for key, value in counted_settings(profile).items():
            conf.set(key, value)
        jvm.tidelog.benchmark.Network.restart()
        self._jvm = jvm
        self._root = root
        self._fs = jvm.org.apache.hadoop.fs.FileSystem.newInstance(self.path("").toUri(), conf)

    def path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{SCHEME}://{self._root}/{name}")

    def put(self, name: str, data: bytes, overwrite: bool = False) -> None:
        stream = self._fs.create(self.path(name), overwrite)
        stream.write(data)
        stream.close()

    def get(self, name: str) -> bytes:
        stream = self._fs.open(self.path(name))
        data: bytes = stream.readAllBytes()
        stream.close()
        return data

    def call(self, method: str, name: str, *arguments: Any) -> Any:
        return getattr(self._fs, method)(self.path(name), *arguments)


def counts(jvm: Any) -> dict[str, tuple[int, int]]:
    """Requests and bytes until now, by kind."""
    found: dict[str, tuple[int, int]] = {}
    requests = jvm.tidelog.benchmark.Requests
    requests.committed(-1)
    for line in requests.at(-1).splitlines():
        kind, _, count, size = line.split()
        before = found.get(kind, (0, 0))
        found[kind] = (before[0] + int(count), before[1] + int(size))
    return found


def counted(jvm: Any, action: Callable[[], Any]) -> dict[str, tuple[int, int]]:
    """Requests and bytes of an action, by kind."""
    before = counts(jvm)
    action()
    after = {
        kind: (n - before.get(kind, (0, 0))[0], size - before.get(kind, (0, 0))[1])
        for kind, (n, size) in counts(jvm).items()
    }
    return {kind: sums for kind, sums in after.items() if sums[0]}


def took_s(jvm: Any, action: Callable[[], Any]) -> float:
    """Seconds, on the JVM's clock."""
    began = jvm.java.lang.System.nanoTime()
    action()
    return float((jvm.java.lang.System.nanoTime() - began) / 1e9)


def test_the_draws_are_those_of_the_golden_file_bit_for_bit(jvm: Any) -> None:
    golden = golden_bits()
    latency = jvm.tidelog.benchmark.StoreLatency
    drawn = {}
    for draw in golden:
        median, seed, kind, number = draw.split()
        ms = latency.ms(float(median), int(seed), kind, int(number))
        drawn[draw] = struct.pack(">d", ms).hex()
    assert drawn == golden


def test_every_operation_counts_the_requests_it_stands_for(jvm: Any, tmp_path: Path) -> None:
    files = Files(jvm, tmp_path, NONE)
    assert counted(jvm, lambda: files.put("a", bytes(10))) == {"put": (1, 10)}
    assert counted(jvm, lambda: files.get("a")) == {"get": (1, 10)}
    assert counted(jvm, lambda: files.call("getFileStatus", "a")) == {"head": (1, 0)}
    assert counted(jvm, lambda: files.call("mkdirs", "d")) == {"mkdirs": (1, 0)}
    renamed = counted(jvm, lambda: files.call("rename", "a", files.path("b")))
    assert renamed == {"copy": (1, 0), "delete": (1, 0)}
    assert counted(jvm, lambda: files.call("delete", "b", False)) == {"delete": (1, 0)}
    assert list(tmp_path.iterdir()) == [tmp_path / "d"]


def test_every_kind_of_request_has_a_price(jvm: Any, tmp_path: Path) -> None:
    files = Files(jvm, tmp_path, NONE)
    files.put("a", b"1")
    files.call("rename", "a", files.path("b"))
    files.call("mkdirs", "d")
    files.call("listStatus", "")
    requests = {kind: float(count) for kind, (count, _) in counts(jvm).items()}
    assert daily(Traffic(1.0, requests, 0)).total > 0


def test_a_listing_costs_a_request_per_thousand_names(jvm: Any, tmp_path: Path) -> None:
    files = Files(jvm, tmp_path, NONE)
    for number in range(1000):
        (tmp_path / f"{number}").touch()
    assert counted(jvm, lambda: files.call("listStatus", "")) == {"list": (1, 0)}
    (tmp_path / "one more").touch()
    assert counted(jvm, lambda: files.call("listStatus", "")) == {"list": (2, 0)}


def test_a_put_that_must_not_overwrite_is_refused_and_counted(jvm: Any, tmp_path: Path) -> None:
    files = Files(jvm, tmp_path, NONE)
    files.put("a", b"first")

    def again() -> None:
        with pytest.raises(Py4JJavaError, match="412"):
            files.put("a", b"second")

    assert counted(jvm, again) == {"put": (1, 6)}
    assert (tmp_path / "a").read_bytes() == b"first"


def test_requests_wait_for_the_latencies_of_the_model(jvm: Any, tmp_path: Path) -> None:
    profile = LatencyProfile(latency_ms=20.0, mb_per_s=0, seed=3, connection_mb_per_s=0)
    least = sum(latency_ms(20.0, 3, Kind.PUT, n) + latency_ms(20.0, 3, Kind.GET, n) for n in (0, 1))
    files = Files(jvm, tmp_path, profile)

    def calls() -> None:
        for name in ("a", "b"):
            files.put(name, b"1")
            files.get(name)

    assert took_s(jvm, calls) >= least / 1e3


def test_no_transfers_together_are_faster_than_the_link(jvm: Any, tmp_path: Path) -> None:
    files = Files(jvm, tmp_path, LatencyProfile(latency_ms=0, mb_per_s=10.0))
    files.put("down", bytes(MB))
    calls = [lambda: files.put("up", bytes(MB)), lambda: files.get("down")]
    threads = [threading.Thread(target=call) for call in calls]

    def together() -> None:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert took_s(jvm, together) >= 2 * MB / 10e6
