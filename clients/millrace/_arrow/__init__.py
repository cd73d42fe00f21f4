"""Columns of Arrow made of records; needs the `arrow` extra, so nothing imports it early."""
