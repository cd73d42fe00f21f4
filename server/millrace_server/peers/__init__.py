"""Calls from this broker to the other brokers of its cluster."""
