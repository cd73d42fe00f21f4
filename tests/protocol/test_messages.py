"""Messages are values: what `dataclass` gives, though their code is made later."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from millrace_protocol.primitives import INT32, STRING
from millrace_protocol.schema import Message, message, wire


@message
class Point(Message):
    """Two fields, the second with a default."""

    x: int = wire(INT32, "first")
    name: str = wire(STRING, "second", since=1, default="-")


@message
class Labelled(Point):
    """One field more than its base."""

    label: str = wire(STRING, "third", since=1, default="none")


def test_fields_are_set_by_position_and_by_name() -> None:
    assert (Point(1).x, Point(1).name) == (1, "-")
    assert Point(1, "a") == Point(x=1, name="a") == Point(1, name="a")


def test_a_class_has_its_own_fields_whichever_is_used_first() -> None:
    assert Point(1).name == "-"
    assert Labelled(1, "a", "b").label == "b"
    with pytest.raises(TypeError, match="takes from 2 to 3 positional arguments"):
        Point(1, "a", "b")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^Point\.__init__\(\) missing 1 required"):
        Point()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        Point(1, z=2)  # type: ignore[call-arg]


def test_messages_are_equal_by_class_and_fields() -> None:
    assert Point(1) != Point(2)
    assert Point(1) != Labelled(1)
    assert Point(1) != (1, "-")
    with pytest.raises(TypeError, match="unhashable"):
        hash(Point(1))
    with pytest.raises(AttributeError):
        Point(1).other = 2  # type: ignore[attr-defined]


def test_messages_are_shown_copied_and_changed_as_dataclasses_are() -> None:
    labelled = Labelled(1, "a")
    assert repr(labelled) == "Labelled(x=1, name='a', label='none')"
    assert copy.deepcopy(labelled) == pickle.loads(pickle.dumps(labelled)) == labelled
    assert dataclasses.replace(labelled, x=2) == Labelled(2, "a")
    assert [field.name for field in dataclasses.fields(labelled)] == ["x", "name", "label"]
    match labelled:
        case Labelled(x, name):
            assert (x, name) == (1, "a")
