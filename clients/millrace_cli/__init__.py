"""The command line `millrace`, on top of the broker, the clients and the Spark pipeline."""
