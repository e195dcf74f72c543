"""Built-in jobs, and where they write."""

from tidelog import FileSink, JobArguments, Sink, StdoutSink


def output_sink(arguments: JobArguments, fields: tuple[str, ...] | None = None) -> Sink:
    """JSON lines: exactly once in part files below `--output`, else on standard output."""
    if arguments.output is None:
        return StdoutSink("json", fields=fields)
    return FileSink(arguments.output, format="json", fields=fields)
