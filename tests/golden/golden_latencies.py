"""The draws that both models of a store, Python's and Scala's, must give.

A line per draw: median of PUT in ms, seed as a signed 64-bit number, kind, number, the latency in
ms as the bits of a double, and, for people, as a decimal. A file that exists is never touched.
"""

import struct

from tests.golden.writing import FOLDER
from tidelog_bench.store import Kind, latency_ms

NAME = "store_latency_v1.txt"
MEDIANS_MS = (1.0, 30.0, 33.3)
SEEDS = (0, 1, -3)
NUMBERS = (*range(8), 999, 1_000_000_007)


def asked() -> list[str]:
    """What identifies each draw."""
    return [
        f"{median} {seed} {kind} {number}"
        for median in MEDIANS_MS
        for seed in SEEDS
        for kind in Kind
        for number in NUMBERS
    ]


def bits(draw: str) -> str:
    """The bits of a draw's latency, as 16 hexadecimal digits."""
    return struct.pack(">d", _ms(draw)).hex()


def golden_bits() -> dict[str, str]:
    """The file: draw -> bits."""
    lines = (FOLDER / NAME).read_text().splitlines()
    return {line.rsplit(" ", 2)[0]: line.rsplit(" ", 2)[1] for line in lines}


def _ms(draw: str) -> float:
    median, seed, kind, number = draw.split()
    return latency_ms(float(median), int(seed), Kind(kind), int(number))


def _file() -> bytes:
    return "".join(f"{draw} {bits(draw)} {_ms(draw):.6f}\n" for draw in asked()).encode()


FILES = {NAME: _file}
