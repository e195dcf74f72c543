"""Whole jobs of today's code against those of an earlier revision: `just speed`."""
