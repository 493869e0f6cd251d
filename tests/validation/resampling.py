"""Posterior draws of small targets by resampling from the prior: no chain to converge."""

from types import SimpleNamespace

import torch

from trjmcmc.draws import Draws
from trjmcmc.kernel import start

DRAWS, FROM = 200, 10_000


class Resampler:
    """What a validation takes for a sampler."""

    def __init__(self, target, *, seed):
        self.target, self.generator = target, torch.Generator().manual_seed(seed)

    def run(self, **how):
        target, generator = self.target, self.generator
        code = target.space.sample_prior(FROM, generator)
        theta = target.sample_prior(code, generator)
        log_weight = target.log_prior_and_likelihood(code, theta)[1].double()
        weight = (log_weight - log_weight.max()).exp().nan_to_num(1.0)
        pick = torch.multinomial(weight, DRAWS, True, generator=generator)
        state = start(target, code[pick], theta[pick])
        raw = Draws(state.code[:, None], state.theta[:, None], state.log_joint[:, None])
        return SimpleNamespace(raw=raw)
