"""A store with the manners of S3: latency, bandwidth, counted requests, prices."""
