"""The asyncio service that the guide prints; says its port in a file, and is killed by its test."""

import asyncio
import sys
from pathlib import Path

from tests.support.documentation import BLOCKS


async def main(url: str, port: str) -> None:
    """Serve until killed."""
    printed: dict[str, object] = {}
    exec(BLOCKS["own-loop 5"], printed)
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(printed["serve"](url, ready))  # type: ignore[operator]
    await asyncio.wait([ready, serving], return_when=asyncio.FIRST_COMPLETED)
    if ready.done():
        Path(f"{port}.new").write_text(str(ready.result()))
        Path(f"{port}.new").rename(port)
    await serving


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
