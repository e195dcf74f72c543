"""The views of tidelog's own stores: slots, segments, tables.

A module per view plans its parts and reads them.
"""
