"""Internal: sources and sinks, a package for each outside system."""
