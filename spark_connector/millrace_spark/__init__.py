"""Spark connector."""
