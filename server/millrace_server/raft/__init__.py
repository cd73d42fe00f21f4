"""The Raft quorum of the metadata log: which broker is the controller, and what is committed."""
