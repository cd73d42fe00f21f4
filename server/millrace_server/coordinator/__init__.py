"""The runtime of coordinators: it loads shards, appends, replays and replies."""
