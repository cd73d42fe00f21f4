"""The metadata cache: the image that is in force on this broker."""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.metadata.image import ClusterImage


class MetadataCache:
    """`image` is replaced as a whole by the committed one that follows it.

    Every reader holds the cache, and takes the image from it once for each request.
    """

    __slots__ = ("image",)

    def __init__(self, image: ClusterImage | None = None) -> None:
        self.image = image or ClusterImage()

    def elsewhere(self, topic: str, number: int) -> ApiError | None:
        """The refusal of a partition that exists and of which this broker has no replica.

        None if there is no such partition.
        """
        known = self.image.topics.get(topic)
        if known is None or not 0 <= number < known.partition_count:
            return None
        brokers = ", ".join(map(str, known.partitions[number].replicas))
        return ApiError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"This broker has no replica of {topic}-{number}; brokers {brokers} have one; refresh "
            "the metadata",
        )
