"""Whole jobs of today's code beside those of an earlier revision: `just speed`."""
