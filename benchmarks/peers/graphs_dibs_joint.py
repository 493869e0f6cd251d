"""Graphs with weights by DiBS 1.3.3, of all data sets of a folder; for an interpreter that has it.

    python graphs_dibs_joint.py FOLDER [PARTICLES] [STEPS]

Reads ``erdos-renyi_0.npz`` and so on, with rows ``x``, writes ``out_...npz`` with graphs ``g``,
weights ``theta`` and processor ``seconds``. Linear equations, noise .1, weights standard normal;
settings of its paper for twenty nodes: alpha .2 t, beta t, bandwidths 5 and 500.
"""

import sys
import time
from pathlib import Path

import jax
import numpy as np
from dibs.inference import JointDiBS
from dibs.models import LinearGaussian
from dibs.models.graph import ErdosReniDAGDistribution, ScaleFreeDAGDistribution

PRIORS = {"erdos-renyi": ErdosReniDAGDistribution, "scale-free": ScaleFreeDAGDistribution}


def main(folder: str, particles: int = 10, steps: int = 3000) -> None:
    for file in sorted(Path(folder).glob("*.npz")):
        answer = file.with_name(f"out_{file.name}")
        if file.name.startswith("out_") or answer.exists():
            continue
        law, seed = file.stem.rsplit("_", 1)
        x = jax.numpy.asarray(np.load(file)["x"])
        d = x.shape[1]
        begun = time.process_time()
        sampler = JointDiBS(
            x=x,
            graph_model=PRIORS[law](n_vars=d, n_edges_per_node=2),
            likelihood_model=LinearGaussian(n_vars=d, obs_noise=0.1, min_edge=0.0),
            alpha_linear=0.2,
            beta_linear=1.0,
            kernel_param={"h_latent": 5.0, "h_theta": 500.0},
        )
        key = jax.random.PRNGKey(int(seed))
        g, theta = sampler.sample(key=key, n_particles=int(particles), steps=int(steps))
        g = np.asarray(g)
        np.savez(answer, g=g, theta=np.asarray(theta), seconds=time.process_time() - begun)
        print(file.stem, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
