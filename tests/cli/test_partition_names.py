"""Which partitions an argument of the command line names."""

from __future__ import annotations

import pytest

from millrace_cli.partition_names import chosen_partitions


def test_a_topic_without_numbers_stands_for_all_of_it() -> None:
    assert chosen_partitions(["a:1,0,1", "b:3", "a:2"]) == {"a": [0, 1, 2], "b": [3]}
    assert chosen_partitions(["a:1", "a"]) == chosen_partitions(["a", "a:1"]) == {"a": None}


@pytest.mark.parametrize("text", ["", ":0", "a:", "a:x", "a:0,", "a:-1", "a:0:1", "a:²"])
def test_a_malformed_partition_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"names no topic|is not a partition"):
        chosen_partitions([text])
