"""Internal: the protocol of checkpoints, and their manifests."""
