"""Micro-benchmarks: the calls that every record, flush, checkpoint and restore is made of.

Run by the test suite once each, so they cannot rot; measured with `just bench-micro`.
"""
