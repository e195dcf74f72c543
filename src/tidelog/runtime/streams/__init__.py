"""What keyed streams offer besides their own operators; `graph` has the streams."""
