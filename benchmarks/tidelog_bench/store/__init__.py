"""A store like S3: latency, bandwidth, counted requests, prices."""
