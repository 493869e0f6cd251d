"""Structural equations: their sum over nodes, where their parameters are, what is refused."""

import pytest
import torch
from torch.distributions import HalfNormal, Independent, Normal

from tests.graphs.small import data
from trjmcmc import graphs
from trjmcmc.errors import ConfigurationError, TargetError
from trjmcmc.target.nodes import Nodes

NAMES = ["a", "b", "c"]


def own_noise(x, names=NAMES, **space):
    """Two numbers an edge, a vector and a scale a node."""

    def density(j, params, parents):
        slope = (params["w"][..., 0] + params["u"]) @ x.T
        mean = slope + params["level"].sum(-1, keepdim=True)
        return Normal(mean, params["sigma"][:, None]).log_prob(x[:, j]).sum(1)

    two = Independent(Normal(torch.zeros(2), 1.0), 1)
    return graphs.equations(
        names,
        density,
        edges={"w": two, "u": Normal(0.0, 0.5)},
        nodes={"level": two, "sigma": HalfNormal(1.0)},
        dtype=torch.float64,
        **space,
    )


def test_the_log_joint_is_the_sum_over_the_nodes(generator):
    target = own_noise(data(3))
    nodes = Nodes(target)
    code = target.space.enumerate()
    theta = target.sample_prior(code, generator)
    total = target.space.log_prior(code).double()
    place = nodes.places(code)
    for j in range(3):
        total = total + nodes.log_joint(j, place[:, j], theta[:, nodes.slots[j]])
    torch.testing.assert_close(total, target.log_joint(code, theta))


def test_every_coordinate_belongs_to_one_equation():
    target = own_noise(data(3))
    slots = Nodes(target).slots
    assert slots.flatten().sort().values.tolist() == list(range(target.dim))
    names = [[target.slot_names[i] for i in row.tolist()] for row in slots]
    assert all(f"{node}.sigma" in row for node, row in zip(NAMES, names, strict=True))
    assert {n for n in names[1] if n.startswith(("w", "u"))} == {
        "w[4]",
        "w[5]",
        "w[6]",
        "w[7]",
        "u[2]",
        "u[3]",
    }


def test_places_of_parents_leave_the_node_out():
    nodes = Nodes(own_noise(data(3)))
    code = torch.tensor([[0b110, 0b101, 0b010]])  # b, c -> a; a, c -> b; b -> c
    assert nodes.places(code).tolist() == [[0b11, 0b11, 0b10]]
    assert nodes.subsets(torch.tensor([0b10])).tolist() == [[0, 1]]


@pytest.mark.whole
def test_rows_that_were_set_say_nothing_of_the_parents(generator):
    x = data(3, n=10)
    mask = torch.zeros(10, 3, dtype=torch.bool)
    mask[4:, 1] = True
    target = graphs.network(x, interventions=mask, names=NAMES, dtype=torch.float64)
    scores = graphs.linear(x, interventions=mask, names=NAMES)
    code = target.space.code_of("a->b, b->c")[None]
    found = graphs.evidences(target, particles=400, moves=10)
    gap = (found.of(code) - scores.of(code)).abs()
    assert float(gap) < 6 * float(found.std_error.square().sum().sqrt()) + 0.02


def test_two_nodes_and_one():
    x = data(2)
    assert graphs.network(x, names=["a", "b"]).space.size == 3
    alone = graphs.network(x[:, :1], names=["a"])
    assert alone.dim == 0
    with pytest.raises(ConfigurationError, match="single node"):
        Nodes(alone)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda x: graphs.equations(NAMES, lambda j, p, a: 0, edges={}), "edges"),
        (
            lambda x: graphs.equations(["a", "a"], lambda j, p, a: 0, edges={"w": Normal(0, 1)}),
            "repeat",
        ),
        (lambda x: graphs.network(x, noise=0.0), "noise"),
        (lambda x: graphs.network(x, hidden=2, activation="step"), "activation"),
        (lambda x: graphs.network(x.log()), "finite"),
        (
            lambda x: graphs.equations(
                NAMES,
                lambda j, p, a: p["w"].sum(1),
                edges={"w": Normal(0.0, 1.0)},
                scores=graphs.bge(x, names=["x", "y", "z"]),
            ),
            "scores",
        ),
    ],
)
def test_what_is_wrong_is_named(make, says):
    with pytest.raises(TargetError, match=says):
        make(data(3))
