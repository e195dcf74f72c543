"""Topics as a source of jobs."""
