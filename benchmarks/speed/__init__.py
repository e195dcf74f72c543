"""Whole jobs beside an earlier revision, and how late their records are: `just speed`."""
