"""Classes of graphs against unions over all graphs with the same skeleton and v-structures."""

import pytest
import torch

from tests.graphs.small import every_graph
from trjmcmc.graphs.classes import completed, labels
from trjmcmc.space.paths import adjacency, ancestors, reaches


def classes_of(code):
    """Number of the class of each graph, and the union of the edges of each class."""
    edges = adjacency(code)
    d = code.shape[1]
    near = edges | edges.mT
    apart = ~near & ~torch.eye(d, dtype=torch.bool)
    meet = edges[:, :, :, None] & edges.mT[:, None] & apart[:, :, None]  # i -> k <- j
    key = torch.cat([near.flatten(1), meet.flatten(1)], 1).long()
    number, which = torch.unique(key, dim=0, return_inverse=True)
    union = torch.stack([edges[which == k].any(0) for k in range(len(number))])
    return which, union


@pytest.mark.parametrize(("d", "n_classes"), [(3, 11), (4, 185)])
def test_every_graph_has_the_union_of_its_class(d, n_classes):
    code = every_graph(d)
    which, union = classes_of(code)
    assert len(union) == n_classes
    found = completed(code)
    assert torch.equal(found, union[which])
    assert len(found.flatten(1).unique(dim=0)) == n_classes
    assert torch.equal(found.flatten(1).long().unique(dim=0, return_counts=True)[1].sort().values,
                       which.bincount().sort().values)  # fmt: skip


def test_a_class_without_one_of_the_rules_is_another():
    """The control: edges of v-structures alone, without those that these compel."""
    code = every_graph(4)
    _, union = classes_of(code)
    edges = adjacency(code)
    apart = ~(edges | edges.mT) & ~torch.eye(4, dtype=torch.bool)
    meets = edges & (apart.float() @ edges.float() > 0)
    partial = edges | (edges & ~meets).mT
    which, _ = classes_of(code)
    assert not torch.equal(partial, union[which])
    assert (partial != union[which]).flatten(1).any(1).sum() > 50


@pytest.mark.parametrize("d", [1, 2, 20, 37])
def test_full_graphs_and_trees_have_no_direction(d):
    order = torch.randperm(d, generator=torch.Generator().manual_seed(d))
    full = torch.zeros(1, d, dtype=torch.long)
    tree = full.clone()
    for at in range(1, d):
        full[0, order[at]] = sum(1 << int(i) for i in order[:at])
        tree[0, order[at]] = 1 << int(order[at // 2])
    for masks in (full, tree):
        edges = adjacency(masks)
        assert torch.equal(completed(masks), edges | edges.mT)


def test_names_show_which_edges_have_a_direction():
    masks = torch.tensor([[0, 0, 3, 4], [0, 1, 0, 0], [0, 0, 0, 0]])
    assert labels(completed(masks), ["a", "b", "c", "d"]) == [
        "a->c, b->c, c->d",
        "a-b",
        "(empty)",
    ]


def test_ancestors_are_what_paths_come_from(generator):
    code = every_graph(4)
    assert torch.equal(adjacency(ancestors(code)) | torch.eye(4).bool(), reaches(adjacency(code)))
