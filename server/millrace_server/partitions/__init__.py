"""The partitions of this broker: opening them, serving them, maintaining them."""
