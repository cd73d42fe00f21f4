"""What the bytes of a segment are worth: scanned, verified, or known to be corrupt."""
