"""The parts of a consumer: positions, fetches, and the shell of its group membership."""
