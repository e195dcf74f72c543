"""The page: one HTML file that needs nothing else.

Invariant: no address is loaded and no script runs; links lead to sources and within the page.
"""
