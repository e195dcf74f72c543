"""What the command line hands to a function that builds a job."""

from dataclasses import dataclass
from pathlib import Path

from tidelog.errors import ConfigError


@dataclass(frozen=True, slots=True)
class JobArguments:
    """The options of `tidelog run` that are the job's business, not the runtime's."""

    input: str | None = None
    """Where the data is."""
    output: str | None = None
    """Where results go; None: standard output."""
    include: str = "*"
    """Glob over input file names."""
    follow: bool = False
    """Never end: wait for more input."""

    def required_input(self) -> Path:
        """The existing input path; raises ConfigError when it is missing."""
        if self.input is None:
            raise ConfigError("--input", expected="a file or directory", action="pass --input PATH")
        path = Path(self.input)
        if not path.exists():
            raise ConfigError(
                f"--input {self.input}",
                expected="a file or directory",
                found="nothing",
                action="create it or pass another path",
            )
        return path
