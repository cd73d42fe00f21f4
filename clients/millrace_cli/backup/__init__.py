"""Backups: directories with the records of a cluster, made over the wire and restored to files."""
