"""A Stan program against another: is the mean of some measurements zero?

The program leaves out its likelihood where the data ``prior_only`` are 1; all else is
``trj.from_stan``. It needs BridgeStan, and a C++ compiler with Stan's sources::

    pip install 'trjmcmc[stan]'
    python examples/stan_prior_only.py

Where these are missing it says what is.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from torch.distributions import HalfNormal, Normal

import trjmcmc as trj

ZERO = """
data { int<lower=0, upper=1> prior_only;  int n;  vector[n] y; }
parameters { real<lower=0> sigma; }
model {
  sigma ~ normal(0, 1);
  if (!prior_only) y ~ normal(0, sigma);
}
"""

FREE = """
data { int<lower=0, upper=1> prior_only;  int n;  vector[n] y; }
parameters { real mu;  real<lower=0> sigma; }
model {
  mu ~ normal(0, 1);
  sigma ~ normal(0, 1);
  if (!prior_only) y ~ normal(mu, sigma);
}
generated quantities { real y_new = normal_rng(mu, sigma); }
"""

MEASURED = [0.3, 1.1, -0.2, 0.8, 0.9, 0.1, 1.4, 0.5]


def models(folder: Path) -> list[trj.Model]:
    """Both programs, opened twice each: with and without their likelihood."""
    data = {"prior_only": 0, "n": len(MEASURED), "y": MEASURED}
    one = torch.ones((), dtype=torch.float64)
    priors = {"mu": Normal(0 * one, one), "sigma": HalfNormal(one)}
    found = []
    for name, text, names in (("zero", ZERO, ["sigma"]), ("free", FREE, ["mu", "sigma"])):
        path = folder / f"{name}.stan"
        path.write_text(text)
        found.append(trj.from_stan(name, (path, data), {k: priors[k] for k in names}))
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--draws", type=int, default=500)
    options.add_argument("--threads", type=int, default=1)
    chosen = options.parse_args()
    torch.set_num_threads(chosen.threads)
    with tempfile.TemporaryDirectory() as folder:
        try:
            zero, free = models(Path(folder))
        except trj.errors.ConfigurationError as error:
            print(error)
            return
        result = trj.TRJSampler(trj.Target([zero, free]), seed=1).run(draws=chosen.draws)
        print(result.model_probabilities().round(3).to_string())
        print("constants that Stan leaves out:", zero.prior_constant, free.prior_constant)
        new = free.predict(result).posterior_predictive["y_new"]
        print("next measurement:", float(new.mean().round(2)))


if __name__ == "__main__":
    main()
