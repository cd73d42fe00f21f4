"""The messages of Apache Kafka's protocol that the broker has, one file for each api.

Names, numbers and versions are Kafka's. `flexible_since` is the first version with compact lengths
and tagged fields (KIP-482).
"""
