"""The metadata cache: the image that is in force on this broker."""

from __future__ import annotations

from millrace_server.metadata.image import ClusterImage


class MetadataCache:
    """`image` is replaced as a whole by the committed one that follows it.

    Every reader holds the cache, and takes the image from it once for each request.
    """

    __slots__ = ("image",)

    def __init__(self, image: ClusterImage | None = None) -> None:
        self.image = image or ClusterImage()
