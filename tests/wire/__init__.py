"""Checks a broker against wire_spec.md from outside, on the wire alone.

`python -m tests.wire HOST:PORT` runs every check and prints what each rule's checks found. The
package imports nothing of millrace: its frames, types, record batches and CRC-32C are written from
the specification, so a mistake of the production codec cannot hide here.

The checks use topics and groups with fresh names. A broker that serves others may be checked.
"""
