"""`millrace demo`: a year of flights through a broker, a group of processes, and Spark."""
