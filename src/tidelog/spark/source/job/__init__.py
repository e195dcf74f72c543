"""The views of tidelog's own stores: slots, segments, tables.

A module per view plans its parts and reads them; `coverage` decides which bytes hold which
changes, `follow` makes a stream of them.
"""
