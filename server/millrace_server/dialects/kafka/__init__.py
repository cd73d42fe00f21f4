"""The dialect of Kafka's clients: the protocol of Apache Kafka 4, one handler file per group of
apis."""
