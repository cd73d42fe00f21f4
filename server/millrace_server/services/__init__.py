"""What a broker does, in plain values: no message of any dialect, no connection."""
