"""Deterministic simulation of whole jobs: virtual time, a faulty store, crashes, zombies."""
