"""The shell of the metadata: its log, and what this broker does when it changes."""
