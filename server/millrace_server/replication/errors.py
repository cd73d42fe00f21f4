"""Why a produce with acks=all is not accepted."""

from __future__ import annotations


class NotEnoughReplicas(Exception):
    """The ISR has fewer members than `min.insync.replicas`; nothing was appended."""
