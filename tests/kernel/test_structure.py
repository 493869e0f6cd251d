"""Structure MCMC: the ratio of the neighbourhoods, and the published ratio of one."""

import pytest
import torch

import trjmcmc as trj
from tests.battery import limit
from tests.graphs.small import data
from trjmcmc import graphs
from trjmcmc.errors import ConfigurationError
from trjmcmc.kernel import BirthDeath, StructureNeighbours, start


def exact(scores):
    target = graphs.target(scores)
    code = target.space.enumerate()
    return target, code, target.log_joint(code, torch.zeros(len(code), 0).double()).softmax(0)


def matrix_of(target, proposal, code):
    """Transition probabilities of a chain of births and deaths, from what is proposed."""
    n = len(code)
    log_joint = target.log_joint(code, torch.zeros(n, 0).double())
    i, j = (x.flatten() for x in torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij"))
    forth = proposal.log_prob(code[j], code[i])
    back = proposal.log_prob(code[i], code[j])
    accepted = (back - forth + log_joint[j] - log_joint[i]).nan_to_num(0.0).clamp(max=0).exp()
    if proposal.ratio == "one":  # as chains take it, whatever was proposed
        accepted = (log_joint[j] - log_joint[i]).clamp(max=0).exp()
        number = target.space.neighbours(code)[1].sum(1)[i]
        forth = torch.where(forth > -torch.inf, -number.double().log(), forth)
    moves = (forth.exp() * accepted).view(n, n).fill_diagonal_(0.0)
    return moves + torch.diag(1 - moves.sum(1))


def test_the_posterior_is_invariant_with_the_right_ratio_alone():
    target, code, p = exact(graphs.bge(data(3)))
    right = matrix_of(target, StructureNeighbours(target.space), code)
    torch.testing.assert_close(p @ right, p, atol=1e-14, rtol=0)
    wrong = matrix_of(target, StructureNeighbours(target.space, ratio="one"), code)
    assert float((p @ wrong - p).abs().max()) > 1e-3


@pytest.mark.whole
@pytest.mark.parametrize("ratio", ["neighbourhoods", "one"])
def test_steps_keep_exact_draws_exact_or_do_not(ratio, generator):
    target, code, p = exact(graphs.bge(data(3)))
    n = 200_000
    state = start(
        target, code[torch.multinomial(p, n, True, generator=generator)], torch.zeros(n, 0).double()
    )
    kernel = BirthDeath(target, StructureNeighbours(target.space, ratio=ratio))
    for _ in range(3):
        state, _ = kernel.step(state, generator)
    counts = torch.bincount(target.space.index(state.code), minlength=len(p)).double()
    often = n * p > 20
    z = float(((counts - n * p) / (n * p * (1 - p)).sqrt())[often].abs().max())
    assert z < limit(len(p)) if ratio == "neighbourhoods" else z > limit(len(p))


def test_what_does_not_fit_is_refused():
    with pytest.raises(ConfigurationError, match="expected Dags"):
        StructureNeighbours(trj.problems.variable_selection(3).space)
    with pytest.raises(ConfigurationError, match='"neighbourhoods" or "one"'):
        StructureNeighbours(trj.graphs.Dags(["a", "b"]), ratio="two")
