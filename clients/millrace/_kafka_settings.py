"""Names that settings have in aiokafka, kafka-python and confluent-kafka, and what they are here.

Owns the hints for names that a client does not know.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from typing import Final

NAMES: Final = {
    "bootstrap_servers": "servers",
    "metadata_broker_list": "servers",
    "group_id": "group",
    "rack": "client_rack",
    "ssl_cafile": "tls_ca",
    "ssl_ca_location": "tls_ca",
    "ssl_certfile": "tls_certificate",
    "ssl_certificate_location": "tls_certificate",
    "ssl_keyfile": "tls_key",
    "ssl_key_location": "tls_key",
    "sasl_plain_username": "username",
    "sasl_username": "username",
    "sasl_plain_password": "password",
    "sasl_password": "password",
    "sasl_mechanisms": "sasl_mechanism",
    "sasl_oauth_token_provider": "token",
    "oauth_cb": "token",
    "enable_auto_commit": "auto_commit",
    "partition_assignment_strategy": "assignors",
    "max_partition_fetch_bytes": "max_partition_bytes",
    "fetch_message_max_bytes": "max_partition_bytes",
    "fetch_wait_max_ms": "fetch_max_wait_ms",
    "compression_type": "compression",
    "compression_codec": "compression",
    "batch_size": "batch_bytes",
    "max_batch_size": "batch_bytes",
    "buffer_memory": "buffer_bytes",
    "queue_buffering_max_ms": "linger_ms",
    "queue_buffering_max_kbytes": "buffer_bytes",
    "max_request_size": "max_request_bytes",
    "message_max_bytes": "max_request_bytes",
    "message_timeout_ms": "delivery_timeout_ms",
    "enable_idempotence": "idempotent",
    "request_required_acks": "acks",
    "request_timeout": "request_timeout_ms",
    "socket_timeout_ms": "request_timeout_ms",
    "socket_connection_setup_timeout_ms": "connect_timeout_ms",
    "topic_metadata_refresh_interval_ms": "metadata_max_age_ms",
    "reconnect_backoff_ms": "retry_backoff_ms",
    "reconnect_backoff_max_ms": "retry_backoff_max_ms",
}
"""Kafka's name, with underscores for dots, and the name here."""
NOTES: Final = {
    "max_poll_records": "it is an argument of getmany(max_records)",
    "consumer_timeout_ms": "it is an argument of getmany(timeout_ms=...)",
    "enable_auto_offset_store": "commit(...) takes the offsets to commit",
    "isolation_level": "there are no transactions, so every record is committed",
    "transactional_id": "there are no transactions yet",
    "retries": "a producer tries again until delivery_timeout_ms is over",
    "message_send_max_retries": "a producer tries again until delivery_timeout_ms is over",
    "max_in_flight_requests_per_connection": "it is five batches of a partition, in order",
    "security_protocol": "tls=True, or tls:// before an address, is SSL; username and password "
    "are SASL",
    "ssl_context": "tls=True has one made, of tls_ca, tls_certificate and tls_key",
    "sasl_jaas_config": "username and password name the user",
    "sasl_kerberos_service_name": "there is no Kerberos",
    "loop": "a client takes the running event loop when it is started",
    "api_version": "client and broker agree on versions by themselves",
    "on_delivery": "send() returns what can be awaited for the receipt",
    "error_cb": "events() and health() tell of errors",
    "stats_cb": "health() tells of the client, Admin.describe_statistics() of the broker",
}
"""What is there instead of a setting that has no name here."""


def unknown_setting(name: str, known: Collection[str]) -> str:
    """What is wrong with a name that is not among the known ones, and what to write instead."""
    plain = name.replace(".", "_").lower()
    note = NOTES.get(plain)
    if note is not None:
        return f"no such setting; {note}"
    meant = plain if plain in known else NAMES.get(plain)
    if meant is None or meant not in known:
        near = difflib.get_close_matches(plain, known, n=1, cutoff=0.75)
        if not near:
            return f"no such setting; there are {', '.join(sorted(known))}"
        (meant,) = near
    if meant == "servers":
        return (
            "no such setting; did you mean servers? They come first, and topics behind them: "
            "Consumer('localhost:9092', 'clicks')"
        )
    return f"no such setting; did you mean {meant}?"


def settings_in_a_dict(names: Iterable[object]) -> str:
    """What is wrong with a dict of settings, as confluent-kafka takes it."""
    shown = []
    for name in names:
        plain = str(name).replace(".", "_").lower()
        shown.append(f"{name} is {NAMES.get(plain, plain)}")
    return (
        "a dict is no address; give the addresses first and each setting by its name, as in "
        f"Producer('localhost:9092', linger_ms=5): {', '.join(shown)}"
    )
