"""One measured run on the embedded runtime: workloads, jobs, stages, stores, meters."""
