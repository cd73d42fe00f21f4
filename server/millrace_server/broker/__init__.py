"""The broker: partitions and services over the cores, and the handlers of the native dialect."""
