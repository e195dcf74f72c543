"""Run as a module, writes golden files of a new format version, and never touches one that exists:
a golden file is a promise that what was once written stays readable.
"""

from importlib import import_module
from pathlib import Path

FOLDER = Path(__file__).parent
WRITTEN = ("blocks", "documents", "encryption", "in_flight", "latencies", "windows")


def stored(name: str) -> bytes:
    return (FOLDER / name).read_bytes()


if __name__ == "__main__":
    for made in WRITTEN:
        for name, content in import_module(f"tests.golden.golden_{made}").FILES.items():
            path = FOLDER / name
            print("kept  " if path.exists() else "wrote ", name)
            if not path.exists():
                path.write_bytes(content())
