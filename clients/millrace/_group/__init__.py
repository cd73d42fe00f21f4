"""The protocol of consumer groups: the member as a pure core, commits, and the coordinator."""
