"""The replicas of partitions on this broker: the shell around `replication`."""
