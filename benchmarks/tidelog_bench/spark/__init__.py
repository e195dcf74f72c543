"""Runs of Spark queries: an application per trial, its queries, and what they ask of the store.

Invariant: pyspark is imported by modules that only a trial's process imports.
"""
