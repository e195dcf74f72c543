"""The benchmarks: measurements that are run in pairs, experiments that read them, reports.

A *measurement* runs the variants of its cells; an *experiment* is a view of one measurement: the
figures, ratios and plots that answer one question. Several experiments may read one measurement.
"""
