"""What the blocking clients are made of: a loop in a thread, and the step into it and back."""
