"""What the cluster knows of itself: records, the image they make, and the rules of change."""
