"""How much the groups of one broker may hold in memory, all its coordinators together.

Owns the sum, and an estimate of what a group and a member cost. The bounds of one group and of one
coordinator are no bound for a broker that has fifty of them: whoever joins ever new groups would
fill it.
"""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.group.image import GroupsImage

GROUP_BYTES = 2_500
"""An empty group, with its place in the coordinator."""
MEMBER_BYTES = 2_500
"""A member without what it says, with its deadlines and its parked request."""


class Room:
    """Bytes held and the most that may be; what is there already is never refused.

    `pending_count` is how many newcomers were told to come back, whose groups take room too.
    Committed offsets have a bound of their own: `images` are those of the coordinators.
    """

    __slots__ = ("_bytes_max", "held_bytes", "images", "pending_count")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.images: list[GroupsImage] = []
        self.held_bytes = 0
        self.pending_count = 0

    @property
    def offsets_bytes(self) -> int:
        """What the committed offsets of all coordinators take."""
        return sum(image.offsets_bytes for image in self.images)

    def leave(self, image: GroupsImage) -> None:
        """A coordinator is not this broker's any more."""
        self.images = [each for each in self.images if each is not image]

    def check(self, size_bytes: int) -> None:
        """Raises `ApiError` unless as much may be added; what gets smaller (below 0) always may."""
        if size_bytes > 0 and self.held_bytes + size_bytes > self._bytes_max:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The groups of this broker and their members take {self.held_bytes} bytes of "
                f"memory, and all that they may is {self._bytes_max}: there is no room for "
                f"{size_bytes} more; delete groups that are not used any more, have fewer "
                "members, or raise the broker's group_memory_max_bytes",
            )
