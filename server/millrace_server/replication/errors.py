"""Why a produce with acks=all is not accepted, or not acked."""

from __future__ import annotations


class NotEnoughReplicas(Exception):
    """The ISR has fewer members than `min.insync.replicas`; nothing was appended."""


class NotEnoughReplicasAfterAppend(Exception):
    """The records are below the high watermark, and the ISR has become too small meanwhile."""
