"""Built-in jobs, and where they write."""

from tidelog.connectors.files.sink import FileSink
from tidelog.connectors.program import StdoutSink
from tidelog.runtime.config import JobArguments
from tidelog.runtime.sink import Sink


def output_sink(arguments: JobArguments, fields: tuple[str, ...] | None = None) -> Sink:
    """JSON lines: exactly once in part files below `--output`, else on standard output."""
    if arguments.output is None:
        return StdoutSink("json", fields=fields)
    return FileSink(arguments.output, format="json", fields=fields)
