"""The sampler ``trjmcmc`` of bilby, which ``bilby.run_sampler`` finds by its entry point.

Not imported by the package. Priors of bilby are priors of a :class:`trjmcmc.Model` as they are,
without this.
"""

from __future__ import annotations

import math
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from typing import Any

import numpy as np
from bilby.core.sampler.base_sampler import NestedSampler
from numpy.typing import NDArray
from torch.distributions import Uniform

from .priors.fields import Periodic
from .run.sampler import TRJSampler
from .target.blackbox import BlackBox
from .target.model import Model
from .target.target import Target

LEAST = -1e300  # of log likelihoods: bilby writes impossible points as the lowest number

MOST_DRAWS = 10_000  # that become samples, each of which costs a prior transform


class TRJMCMC(NestedSampler):
    """One model of bilby, on the unit cube of its prior transform.

    ``bilby.run_sampler(likelihood, priors, sampler="trjmcmc", ...)`` takes, beside what it takes
    for all samplers, ``seed``, and as of :meth:`trjmcmc.TRJSampler.run` ``until``,
    ``max_evaluations``, ``max_seconds`` and ``progress``. ``npool`` processes share the likelihood.
    Conditional priors and constraints are those of the prior transform and of bilby.

    The result has ``log_evidence`` in nats, its standard error, equally weighted samples, and
    ``meta_data["trjmcmc"]``: likelihood calls and what the run has to say of its answer.
    """

    sampler_name = "trjmcmc"
    sampling_seed_key = "seed"
    default_kwargs = {  # noqa: RUF012
        "seed": None,
        "until": None,
        "max_evaluations": None,
        "max_seconds": None,
        "progress": True,
    }

    def run_sampler(self) -> Any:
        """Sample, and fill in the result of bilby."""
        asked = dict(self.kwargs)
        seed = asked.pop("seed")
        with ProcessPoolExecutor(self.npool) if self.npool > 1 else nullcontext() as pool:
            target = Target([self._model(pool)])
            found = TRJSampler(target, seed=seed).run(**asked)
        evidence = found.evidence().iloc[0]
        self.result.log_evidence = float(evidence["log_evidence"])
        self.result.log_evidence_err = float(evidence["se"])
        unit = np.column_stack([found.draws("bilby")[key] for key in self.search_parameter_keys])
        some = np.linspace(0, len(unit) - 1, min(len(unit), MOST_DRAWS)).astype(int)
        self.result.samples = np.array([self.prior_transform(u) for u in unit[some]])
        self.result.sampler_output = found
        self.result.meta_data["trjmcmc"] = {
            "evaluations": int(found.report.evaluations),
            "doubts": [str(doubt) for doubt in found.doubts],
        }
        return self.result

    def _model(self, pool: Any) -> Model:
        """The likelihood over the unit cube; periodic parameters stay periodic."""
        priors = {
            key: (Periodic if self.priors[key].boundary == "periodic" else Uniform)(0.0, 1.0)
            for key in self.search_parameter_keys
        }
        return Model("bilby", priors, BlackBox(self._log_likelihood, pool=pool))

    def _log_likelihood(self, unit: dict[str, NDArray[Any]]) -> float:
        cube = [float(unit[key]) for key in self.search_parameter_keys]
        found = float(self.log_likelihood(self.prior_transform(cube)))
        return found if found > LEAST else -math.inf
