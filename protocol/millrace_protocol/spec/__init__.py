"""The specification's generated half: tables, examples and the Wireshark dissector.

`python -m millrace_protocol.spec wire_spec.md` brings the document up to date, `--check` says
whether it is.
"""
