"""G8: draft trees in both notations; what is no tree is refused; no depth is too deep."""

from __future__ import annotations

import random

import pytest

from grammar_backends import BitmaskBuilder, DraftTree, GrammarSpec, MaskRequest, load_backend, load_vocabulary


def test_g8_links_and_parents_give_the_same_tree() -> None:
    by_parents = DraftTree.from_parents([0, 1, 2, 3, 4], [-1, 0, 0, 1, 1])
    by_links = DraftTree.from_links([0, 1, 2, 3, 4], [1, 3, -1, -1, -1], [-1, 2, -1, 4, -1])
    assert by_links == by_parents
    assert by_links.links(lambda token: True) == ([1, 3, -1, -1, -1], [-1, 2, -1, 4, -1])
    assert len(by_links) == 4
    assert by_links.depth == 2
    assert by_links.walk == ((0, 0), (1, 1), (3, 2), (4, 2), (2, 1))


def test_g8_links_round_trip_for_random_trees() -> None:
    among = random.Random(1)
    for _ in range(300):
        size = among.randrange(1, 12)
        order = among.sample(range(1, size), size - 1)  # nodes in any order: a parent may have the larger number
        parents = [-1] * size
        for place, node in enumerate(order):
            parents[node] = among.choice([0, *order[:place]])
        tree = DraftTree.from_parents(range(size), parents)
        assert DraftTree.from_links(range(size), *tree.links(lambda token: True)) == tree
        depths = dict(tree.walk)
        assert all(depths[node] == depths[parents[node]] + 1 for node in range(1, size))
        assert sorted(depths) == list(range(size))


def test_g8_links_leave_out_what_is_not_linked() -> None:
    tree = DraftTree.from_parents([0, 1, 2, 3, 4], [-1, 0, 0, 1, 1])
    assert tree.links(lambda token: token != 1) == ([2, 3, -1, -1, -1], [-1, -1, -1, 4, -1])


@pytest.mark.parametrize(
    ("first_child", "next_sibling"),
    [
        ([1], [-1, -1]),  # lengths
        ([0, -1], [-1, -1]),  # the root hangs on itself
        ([1, -1], [1, -1]),  # the root has a sibling
        ([1, 1], [-1, -1]),  # linked twice
        ([2, -1], [-1, -1]),  # leads nowhere
        ([-1, -1], [-1, -1]),  # a node is never linked
        ([-5, -1], [-1, -1]),
    ],
)
def test_g8_links_that_are_no_tree_are_refused(first_child: list[int], next_sibling: list[int]) -> None:
    with pytest.raises(ValueError, match="tree"):
        DraftTree.from_links([0, 1], first_child, next_sibling)


@pytest.mark.parametrize("parents", [[], [0], [-1, -1], [-1, 2, 1], [-1, 5, 0], [-1, 0], [-1, 1, 0]])
def test_g8_parents_that_are_no_tree_are_refused(parents: list[int]) -> None:
    with pytest.raises(ValueError, match="tree"):
        DraftTree.from_parents([0, 1, 2], parents)


@pytest.mark.parametrize("name", ["xgrammar", "guidance"])
@pytest.mark.parametrize("branching", [False, True])
def test_g8_a_tree_may_be_deeper_or_wider_than_any_recursion(name: str, branching: bool) -> None:
    vocabulary, drafts = load_vocabulary("byte"), 3000
    grammar = load_backend(name, vocabulary).compile_grammar(GrammarSpec.regex("a*")).new_grammar()
    parents = [-1, *([0] * drafts if branching else range(drafts))]
    tree = DraftTree.from_parents([0] + [ord("a")] * drafts, parents)
    batch = BitmaskBuilder(vocabulary, 1, drafts).build([MaskRequest("r", grammar, tree)])
    assert batch.descriptor.num_acceptable == (drafts,)
    assert grammar.num_accepted == 0
    assert (batch.bitmask == batch.bitmask[0]).all()
