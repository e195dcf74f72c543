"""Internal: state for a program's own loop."""
