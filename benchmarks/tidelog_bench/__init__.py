"""The benchmarks: experiments whose variants are run in pairs, their records and reports."""
