"""The cluster as a client sees it: connections, metadata, and requests to partition leaders."""
