"""The millrace broker."""
