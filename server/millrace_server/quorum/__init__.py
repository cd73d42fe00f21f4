"""The replica of the metadata log on this broker: the shell around `raft`."""
