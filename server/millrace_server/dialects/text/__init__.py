"""The text dialect: one request a line, answers in lines, for netcat (wire_spec.md W-8)."""
