"""Default runs on a device: while they sample, nothing is waited for but blocks of draws."""

from collections import Counter

import pytest

import trjmcmc as trj
from tests.emulated import DEVICE, Emulated
from trjmcmc import draws
from trjmcmc.run.sampling import Walk

DRAWS = 100

PROBLEMS = {
    "robust regression": trj.problems.robust_regression,
    "coal mining": trj.problems.coal_mining,
    "selection": trj.problems.variable_selection,
    "pulses": trj.problems.pulses,
}

USERS = ("trjmcmc/problems",)

# three tensors on their way, and whether a density was undefined
OF_A_BLOCK = ("trjmcmc/draws.py", "trjmcmc/run/count.py")

# once a lookup, until all models are known
ASKED = ("trjmcmc/transport/memory.py", "trjmcmc/transport/laplace.py")


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore")  # of runs that are far too short
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_default_run_samples_without_waiting(name, monkeypatch, clock):
    found, draw = Counter(), Walk.draw
    with Emulated() as device:

        def counted(self, thin, recorder):
            before = device.counts()
            draw(self, thin, recorder)
            found.update(device.counts() - before)

        monkeypatch.setattr(Walk, "draw", counted)
        sampler = trj.TRJSampler(PROBLEMS[name](), seed=1, device=DEVICE)
        result = sampler.run(DRAWS, chains=32, max_seconds=15, progress=False)
    kept = result.raw.n_draws
    assert 10 < kept <= DRAWS
    mine = {k: n for k, n in found.items() if not k[2].startswith(USERS + ASKED)}
    assert all(place.startswith(OF_A_BLOCK) for _, _, place in mine), mine
    assert sum(mine.values()) <= 8 * -(-kept // draws.BLOCK_DRAWS)
