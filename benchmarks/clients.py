"""Clients of object stores compared: processor, latency and memory of small PUTs, 32 in flight.

    python benchmarks/clients.py s3 http://127.0.0.1:7070 KEY SECRET >> clients.jsonl
    python benchmarks/clients.py az http://127.0.0.1:10000/ACCOUNT ACCOUNT KEY >> clients.jsonl

Needs a running server with a bucket `tide`, and obstore, s3fs and adlfs. Each measurement is a
process of its own; the clients take turns within a pair. With `computing` another thread of Python
computes all the time, as a user's function does.
"""

import asyncio
import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

PAIRS = 5
PUTS = 600
IN_FLIGHT = 32
SIZE = 16 * 1024
CLIENTS = {
    "s3": ("s3fs", "obstore", "obstore in threads"),
    "az": ("adlfs", "obstore", "obstore in threads"),
}
Put = Callable[[str, bytes], Awaitable[Any]]


def s3fs(endpoint: str, key: str, secret: str) -> Put:
    from s3fs import S3FileSystem  # noqa: PLC0415

    filesystem = S3FileSystem(
        asynchronous=True,
        skip_instance_cache=True,
        endpoint_url=endpoint,
        key=key,
        secret=secret,
        client_kwargs={"region_name": "us-east-1"},
        config_kwargs={"max_pool_connections": 64},
    )
    return lambda name, data: filesystem._pipe_file(f"tide/{name}", data)


def adlfs(endpoint: str, account: str, key: str) -> Put:
    from adlfs import AzureBlobFileSystem  # noqa: PLC0415

    text = f"AccountName={account};AccountKey={key};BlobEndpoint={endpoint};"
    filesystem = AzureBlobFileSystem(
        connection_string=f"DefaultEndpointsProtocol=http;{text}",
        asynchronous=True,
        skip_instance_cache=True,
    )
    return lambda name, data: filesystem._pipe_file(f"tide/{name}", data, overwrite=True)


def obstore_store(cloud: str, endpoint: str, key: str, secret: str) -> Any:
    from obstore.store import AzureStore, S3Store  # noqa: PLC0415

    common: Any = {"client_options": {"allow_http": True}, "retry_config": {"max_retries": 0}}
    if cloud == "s3":
        config: Any = {"access_key_id": key, "secret_access_key": secret, "region": "us-east-1"}
        return S3Store("tide", config={"endpoint": endpoint, **config}, **common)
    named: Any = {"account_name": key, "account_key": secret, "endpoint": endpoint}
    return AzureStore("tide", config=named, **common)


def client(name: str, cloud: str, *where: str) -> Put:
    if name in {"s3fs", "adlfs"}:
        put: Put = {"s3fs": s3fs, "adlfs": adlfs}[name](*where)
        return put
    import obstore  # noqa: PLC0415

    store = obstore_store(cloud, *where)
    if name == "obstore":
        return lambda name, data: obstore.put_async(store, name, data, use_multipart=False)
    pool, loop = ThreadPoolExecutor(64), asyncio.get_running_loop()
    return lambda name, data: loop.run_in_executor(
        pool, lambda: obstore.put(store, name, data, use_multipart=False)
    )


async def measured(name: str, computing: bool, cloud: str, *where: str) -> dict[str, Any]:
    put, data = client(name, cloud, *where), bytes(range(256)) * (SIZE // 256)
    seconds: list[float] = []

    async def write(lane: int, turns: Any) -> None:
        for _ in turns:
            started = time.perf_counter()
            await put(f"lane/{lane}", data)
            seconds.append(time.perf_counter() - started)

    await asyncio.gather(*(write(lane, range(2)) for lane in range(IN_FLIGHT)))
    seconds.clear()
    done = threading.Event()

    def compute() -> None:
        while not done.is_set():
            sum(range(1000))

    thread = threading.Thread(target=compute)
    if computing:
        thread.start()
    before, main, wall = time.process_time(), time.thread_time(), time.perf_counter()
    turns = iter(range(PUTS))
    await asyncio.gather(*(write(lane, turns) for lane in range(IN_FLIGHT)))
    result = {
        "cpu_us": round(1e6 * (time.process_time() - before) / PUTS),
        "main_thread_us": round(1e6 * (time.thread_time() - main) / PUTS),
        "puts_per_s": round(PUTS / (time.perf_counter() - wall)),
        "p50_ms": round(1e3 * sorted(seconds)[PUTS // 2], 1),
        "p99_ms": round(1e3 * sorted(seconds)[PUTS * 99 // 100], 1),
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    done.set()
    return result


def pairs(cloud: str, *where: str) -> None:
    for pair in range(PAIRS):
        for computing in ("", "computing"):
            for name in CLIENTS[cloud]:
                command = [sys.executable, __file__, "one", name, computing, cloud, *where]
                run = subprocess.run(command, capture_output=True, text=True, check=False)
                record = {
                    "experiment": "cloud_clients",
                    "cloud": cloud,
                    "client": name,
                    "pair": pair,
                    "computing": bool(computing),
                    "size": SIZE,
                    "in_flight": IN_FLIGHT,
                    "exit": run.returncode,
                    **json.loads(run.stdout or "{}"),
                }
                print(json.dumps(record), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "one":
        _, _, one, thread_computes, *at = sys.argv
        print(json.dumps(asyncio.run(measured(one, bool(thread_computes), *at))), flush=True)
    else:
        pairs(*sys.argv[1:])
