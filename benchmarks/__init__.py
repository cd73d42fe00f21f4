"""Speed and footprint of millrace, each figure beside something measured in the same run."""
