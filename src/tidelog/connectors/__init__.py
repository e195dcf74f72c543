"""Sources and sinks that come with tidelog: a room for each outside system, both ways."""
