"""What the macro benchmarks share: workloads, one measured run, pairs of runs, records."""
