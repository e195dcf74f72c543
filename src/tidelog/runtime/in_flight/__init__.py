"""In-flight data of unaligned checkpoints: collected, stored, redistributed, restored (FLIP-76)."""
