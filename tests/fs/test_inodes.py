import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.fs.kernel.errnos import StaleError
from logfs.fs.tree.inodes import ROOT_INODE, InodeTable, inode_number


class Thing:
    def __init__(self, key: str) -> None:
        self.key = self.shown_key = key
        self.ino = 0


def table_of_three() -> InodeTable[Thing]:
    """A table whose hash knows three numbers, so that keys collide."""
    return InodeTable(Thing("root"), lambda key, salt: 100 + (len(key) + salt) % 3)


def test_a_number_does_not_change() -> None:
    # A value that was handed out once: numbers have to survive releases as well.
    assert inode_number("topic/0/plain", 0) == 5934711133216425710
    assert inode_number("topic/0/plain", 1) != inode_number("topic/0/plain", 0)


@given(st.text(), st.integers(0, 2**64 - 1))
def test_numbers_are_positive_and_never_that_of_the_root(key: str, salt: int) -> None:
    assert ROOT_INODE < inode_number(key, salt) < 2**63


def test_the_root_is_one_and_cannot_be_forgotten() -> None:
    root = Thing("root")
    table = InodeTable(root)
    table.forget([(ROOT_INODE, 5)])
    assert root.ino == ROOT_INODE
    assert table.node(ROOT_INODE) is root


def test_a_node_is_known_from_its_first_look_up_to_its_last() -> None:
    table = InodeTable(Thing("root"))
    node = table.canonical(Thing("a"))
    with pytest.raises(StaleError):
        table.node(node.ino)
    table.count(node)
    table.count(node)
    table.forget([(node.ino, 1)])
    assert table.node(node.ino) is node
    table.forget([(node.ino, 1)])
    with pytest.raises(StaleError):
        table.node(node.ino)
    assert len(table) == 1


def test_equal_keys_share_one_node_and_one_number() -> None:
    table = InodeTable(Thing("root"))
    first = table.canonical(Thing("a"))
    table.count(first)
    assert table.canonical(Thing("a")) is first
    assert table.canonical(first) is first


def test_a_node_keeps_its_number_when_it_comes_back() -> None:
    table = InodeTable(Thing("root"))
    node = table.canonical(Thing("a"))
    number = node.ino
    table.count(node)
    table.forget([(number, 1)])
    assert table.canonical(Thing("a")).ino == number


def test_different_keys_that_collide_get_different_numbers() -> None:
    table = table_of_three()
    nodes = []
    for key in ("a", "b", "c"):
        node = table.canonical(Thing(key))
        table.count(node)
        nodes.append(node)
    assert sorted(node.ino for node in nodes) == [100, 101, 102]
    assert [table.node(node.ino) for node in nodes] == nodes
    assert table.canonical(Thing("b")) is nodes[1]


def test_a_node_whose_number_was_taken_meanwhile_gets_another() -> None:
    table = table_of_three()
    node = table.canonical(Thing("a"))
    other = table.canonical(Thing("b"))
    assert node.ino == other.ino  # neither is known to the kernel yet
    table.count(other)
    assert table.canonical(node).ino != other.ino


def test_forgetting_an_unknown_number_does_nothing() -> None:
    table = table_of_three()
    table.forget([(12345, 1), (100, 3)])
    assert len(table) == 1


def test_lookups_that_were_counted_elsewhere_keep_a_node() -> None:
    elsewhere = {100: 5}
    table = InodeTable(
        Thing("root"), lambda *_: 100, take_lookups=lambda number: elsewhere.pop(number, 0)
    )
    node = table.canonical(Thing("a"))
    table.count(node)
    table.forget([(node.ino, 4)])
    assert table.node(node.ino) is node
    table.forget([(node.ino, 2)])
    with pytest.raises(StaleError):
        table.node(node.ino)


def test_a_lookup_that_was_counted_elsewhere_changes_the_number_of_lookups() -> None:
    elsewhere: dict[int, int] = {}
    table = InodeTable(
        Thing("root"), lambda *_: 100, take_lookups=lambda number: elsewhere.pop(number, 0)
    )
    node = table.canonical(Thing("a"))
    table.count(node)
    before = table.lookups(node.ino)
    elsewhere[node.ino] = 1
    assert table.lookups(node.ino) != before
    elsewhere[node.ino] = 1
    table.drop(node.ino)
    assert not elsewhere
