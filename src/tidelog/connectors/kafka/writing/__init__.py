"""Topics as a sink of jobs, exactly once by a staging topic or at least once."""
