"""Async clients of the millrace broker."""
