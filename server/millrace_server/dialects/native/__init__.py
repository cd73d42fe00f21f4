"""The native dialect: length-prefixed frames (wire_spec.md W-2), one handler file per api."""
