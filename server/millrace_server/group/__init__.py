"""The consumer-group coordinator: who is in a group, who leads, what they have committed."""
