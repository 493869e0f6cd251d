"""Edge probabilities by DiBS 1.3.3; run by an interpreter that has it, of data and settings.

    python graphs_dibs.py data.npy settings.json answer.json

Settings: ``steps``, ``particles`` and ``seed``. BGe, a uniform prior, all else at its defaults. It
can't be stopped by a clock: its schedules and its compilation come whole. ``plus`` weighs particles
by p(D|G), as DiBS+ does, those with cycles left out.
"""

import json
import sys
import time

import jax
import numpy as np
from dibs.graph_utils import elwise_acyclic_constr_nograd
from dibs.inference import MarginalDiBS
from dibs.models import BGe
from dibs.models.graph import UniformDAGDistributionRejection


def main(data: str, settings: str, answer: str) -> None:
    with open(settings) as file:
        asked = json.load(file)
    x = np.load(data)
    d = x.shape[1]
    begun = time.process_time()
    sampler = MarginalDiBS(
        x=jax.numpy.asarray(x),
        graph_model=UniformDAGDistributionRejection(n_vars=d),
        likelihood_model=BGe(n_vars=d),
    )
    key = jax.random.PRNGKey(asked["seed"])
    graphs = sampler.sample(key=key, n_particles=asked["particles"], steps=asked["steps"])
    acyclic = np.asarray(elwise_acyclic_constr_nograd(graphs, d) == 0)
    graphs = np.asarray(graphs)[acyclic]
    found = {"seconds": time.process_time() - begun, "scores": 0.0}
    found["note"] = f"{asked['steps']} steps, {len(graphs)} of {len(acyclic)} particles acyclic"
    if len(graphs):
        mixture = sampler.get_mixture(graphs)
        weight = np.exp(np.asarray(mixture.logp, dtype=float))
        plus = np.einsum("c,cij->ij", weight / weight.sum(), np.asarray(mixture.g, dtype=float))
        found |= {"edges": graphs.mean(0).tolist(), "plus": plus.tolist()}
        found["seconds"] = time.process_time() - begun
    with open(answer, "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
