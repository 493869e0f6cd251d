"""Chains that start afresh in a record, and ladders that what carried them has shown."""

from types import SimpleNamespace

import torch

from trjmcmc.run.policy_of_components import CountedPolicy
from trjmcmc.run.renewals import Renewals, renewed
from trjmcmc.run.tempering import Passage


class Told:
    """A kernel whose chains start afresh when they are told to."""

    def __init__(self, fresh):
        self.fresh = torch.tensor(fresh)

    def parts(self):
        return [self, SimpleNamespace(ancestors=lambda state, known: known)]

    def ancestors(self, state, known):
        return torch.where(self.fresh > 0, -self.fresh, known)


def test_chains_descend_from_where_they_started_afresh():
    ancestor = torch.tensor([4, 4, 4])
    assert renewed(Told([0, 7, 0]), None, ancestor).tolist() == [4, -7, 4]


def test_a_start_counts_once_half_of_the_record_came_from_it():
    kernel = Told([0, 5, 0])
    renewals = Renewals(kernel, None, torch.tensor([4, 4, 4]))
    seen = [renewals.starts(None).tolist() for _ in range(3)]
    assert seen == [[4, -5, 4]] * 3  # the second had started afresh before
    kernel.fresh = torch.tensor([9, 5, 0])
    seen = [renewals.starts(None)[0].item() for _ in range(4)]  # three of six, then four of seven
    assert seen == [4, 4, -9, -9]
    kernel.fresh = torch.tensor([0, 5, 0])  # the replica that never was renewed is back
    seen = [renewals.starts(None).tolist() for _ in range(2)]
    assert seen == [[-9, -5, 4], [4, -5, 4]]  # four of eight, four of nine


def passage(empty):
    found = Passage()
    state, rows = SimpleNamespace(code=torch.zeros(3, 1), theta=torch.zeros(3, 2)), torch.arange(3)
    for power, share in zip([0.0, 0.01, 0.1, 0.5], empty, strict=True):
        values = torch.tensor([0.0, 4.0, 8.0]) / max(power, 0.01)
        gone = torch.arange(3) < 3 * share
        found.add(power, values, gone, state, rows)
    return found


def test_the_rejection_rate_of_neighbours_grows_by_half_of_a_mean_difference():
    assert torch.tensor(passage([0, 0, 0, 0]).barrier[-1]).isclose(
        torch.tensor((4 + 8 + 4) / 3 / 0.5 / 2)
    )


def test_a_ladder_ends_at_the_prior_or_where_chains_lose_all_they_have():
    policy = CountedPolicy()
    to_the_prior = passage([0, 0, 0, 0]).ladder(policy)
    assert to_the_prior[0] == 1 and to_the_prior[-1] == 0
    empty = passage([1, 1, 1 / 3, 0]).ladder(policy)
    assert empty[0] == 1 and abs(float(empty[-1]) - policy.melting * 0.1) < 1e-9
    for powers in (to_the_prior, empty):
        assert (powers[1:] < powers[:-1]).all()
        assert policy.least_rungs <= len(powers) <= policy.most_rungs
    always = passage([1, 1, 1, 1]).ladder(policy)
    assert abs(float(always[-1]) - policy.melting * 0.5) < 1e-9


def test_replicas_begin_where_chains_were_at_the_nearest_power():
    found = passage([0, 0, 0, 0])
    found.thetas = [torch.full((3, 2), float(i)) for i in range(4)]
    code, theta, ancestor = found.at(torch.tensor([1.0, 0.12, 0.0]), 4)
    assert code.shape == (3, 4, 1) and theta[:, 0, 0].tolist() == [3.0, 2.0, 0.0]
    assert ancestor.tolist() == [[0, 1, 2, 0]] * 3
