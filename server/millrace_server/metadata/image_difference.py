"""What differs between two images: what a broker applies that has skipped the records between."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from millrace_server.metadata.image import ClusterImage


@dataclass(frozen=True, slots=True)
class ImageDifference:
    """Stands for the `Delta` from `before` to `after` (see `delta.Delta`)."""

    before: ClusterImage
    after: ClusterImage

    @property
    def changed(self) -> list[uuid.UUID]:
        """The topics of `after` that are new or not as before."""
        before = self.before
        return [
            topic.topic_id
            for topic in self.after.topics.values()
            if before.topic_by_id(topic.topic_id) != topic
        ]

    @property
    def removed(self) -> list[uuid.UUID]:
        """The topics of `before` that `after` has no more."""
        return [topic_id for topic_id in self.before.names if topic_id not in self.after.names]
