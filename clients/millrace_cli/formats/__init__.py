"""The text formats of the command line: input lines, record output, requests, exchanges."""
