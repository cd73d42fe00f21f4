"""The compiled codec: generated functions that decode and encode one version of a message.

Owns when they are compiled: at the first use of a message and version, each of the four for
itself, in some 0.5 ms. The declarations in `messages/` are their only source, and property tests
pin them to the declared codec. To read them:

    python -m millrace_protocol.generated FetchRequest
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, TypeVar

from millrace_protocol.api import APIS
from millrace_protocol.reader_source import Buffer, reader_source
from millrace_protocol.schema import Message
from millrace_protocol.source_text import SourceText
from millrace_protocol.writer_source import writer_source

F = TypeVar("F")

Read = Callable[[Buffer], Any]
"""Decodes a whole body."""
ReadSteps = Callable[[memoryview, int, int], Generator[None, int, tuple[Any, int]]]
"""Decodes a message between two positions in steps, each of as many entries as are sent."""
Write = Callable[[Any], list[Buffer]]
"""Encodes a message to the parts of its body."""
WriteSteps = Callable[[Any, list[Buffer]], Generator[None, int, None]]
"""The same in steps; appends to a list of parts."""


class _Functions(dict[tuple[type[Message], int], F]):
    """The functions of one kind, by message and version; made when first asked for."""

    def __init__(self, make_source: Callable[[type[Message], int], SourceText]) -> None:
        super().__init__()
        self._make_source = make_source

    def __missing__(self, key: tuple[type[Message], int]) -> F:
        text = self._make_source(*key)
        namespace = dict(text.namespace)
        exec(compile(str(text), f"<{text.name} {key[0].__name__} {key[1]}>", "exec"), namespace)
        function: F = namespace[text.name]
        self[key] = function
        return function


readers = _Functions[Read](partial(reader_source, in_steps=False))
step_readers = _Functions[ReadSteps](partial(reader_source, in_steps=True))
writers = _Functions[Write](partial(writer_source, in_steps=False))
step_writers = _Functions[WriteSteps](partial(writer_source, in_steps=True))


def main(arguments: list[str]) -> int:
    """Prints the functions of a message, in the version given or in version 0."""
    known = {cls.__name__: cls for api in APIS.values() for cls in (api.request, api.response)}
    if not arguments or arguments[0] not in known:
        print(f"usage: python -m {__spec__.name} MESSAGE [VERSION]", *sorted(known), sep="\n  ")
        return 2
    cls, version = known[arguments[0]], int(arguments[1]) if arguments[1:] else 0
    for make in (reader_source, writer_source):
        for in_steps in (False, True):
            print(make(cls, version, in_steps=in_steps))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
