"""The seams to the outside, as protocols: clock, disk, network, randomness, tasks."""
