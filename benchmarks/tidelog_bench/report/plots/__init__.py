"""Plots of a report, drawn by matplotlib as SVG that takes its colours from the page.

Invariant: matplotlib is loaded when a plot is drawn and not before.
"""
