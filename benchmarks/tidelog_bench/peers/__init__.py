"""The peers' word count: other systems with state, measured in the harness of the benchmarks.

Invariant: a program imports the standard library, its own system and what of tidelog needs nothing
more, because it runs in an environment that may hold nothing else.
"""
