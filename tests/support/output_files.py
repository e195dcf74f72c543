"""What readers of a `FileSink`'s directory see, also while a job writes to it."""

from pathlib import Path


def output_files(directory: Path) -> list[Path]:
    """The complete files and those that grow, in the order written per subtask."""
    return sorted(directory.glob("*part-*"), key=lambda path: path.name.lstrip("_"))


def output_lines(directory: Path) -> list[str]:
    """The lines in them that have ended: a commit may be under way."""
    while True:
        try:
            texts = [path.read_text() for path in output_files(directory)]
        except FileNotFoundError:
            continue  # it has got its final name meanwhile
        return [line for text in texts for line in text.rpartition("\n")[0].splitlines()]
