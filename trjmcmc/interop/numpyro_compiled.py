"""A NumPyro function as densities, draws and gradients of batches of points."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import TargetError
from .bridge import on_host, through
from .jax_batches import SIZES, Batched, with_precision, with_slopes
from .numpyro_supports import constant, ends_of
from .numpyro_trace import NumPyroLatent, NumPyroProgram, check_same, explored
from .site import Conditional, Site

Array = NDArray[Any]

Values = Mapping[str, Array]

TRIED = 64  # prior draws by which ends of supports are told to depend on parameters or not


class Compiled:
    """A program's densities, draws and gradients, on arrays of C points.

    A point is one vector of all values, in the order of the sites.

    Arguments:
        program: The function.
        x64: Compute in float64.
    """

    def __init__(self, program: NumPyroProgram, *, x64: bool) -> None:
        self.program, self.x64 = program, x64
        self.dtype = torch.float64 if self.x64 else torch.float32
        self.real = np.float64 if self.x64 else np.float32
        with with_precision(self.x64):
            self.latents, self.plates, self.data = explored(program)
        self.places, start = dict[str, slice](), 0
        self.entries, entry = dict[str, slice](), 0
        for site in self.latents:
            size, many = math.prod(site.shape), math.prod(site.batch_shape)
            self.places[site.name] = slice(start, start + size)
            self.entries[site.name] = slice(entry, entry + many)
            start, entry = start + size, entry + many
        self.width, self.n_entries = start, entry
        self.by_name = {site.name: site for site in self.latents}
        self._densities = Batched(self._density, x64=self.x64)
        self._gradients = Batched(self._density_and_slopes, x64=self.x64)
        self._pulled = Batched(self._pull_back, x64=self.x64)
        self._drawn: dict[frozenset[str] | None, Batched] = {}
        self._ends = Batched(lambda x: (self._ends_of(x),), x64=self.x64)
        self._ends_pulled = Batched(self._pull_back_ends, x64=self.x64)
        self._ends_at: dict[str, list[Any]] = {}
        self.filler = np.zeros(self.width, self.real)
        if self.latents:
            self._try_draws()

    def __deepcopy__(self, memo: dict[int, Any]) -> Compiled:
        return self

    # ---- of one point, in JAX -----------------------------------------------------------------

    def _unpacked(self, x: Any) -> dict[str, Any]:
        return {s.name: x[self.places[s.name]].reshape(s.shape) for s in self.latents}

    def _sites(self, x: Any) -> Mapping[str, Any]:
        import jax

        trace = self.program.traced(jax.random.PRNGKey(0), self._unpacked(x))
        found = [k for k, s in trace.items() if s["type"] == "sample" and not s["is_observed"]]
        check_same(self.program.owner, list(self.by_name), found)
        return trace

    def _entries(self, trace: Mapping[str, Any]) -> Any:
        """Log prior by entry at one point."""
        from jax import numpy as jnp

        sites = (trace[k] for k in self.by_name)
        each = [s["fn"].log_prob(s["value"]).reshape(-1) for s in sites]
        return jnp.concatenate(each) if each else jnp.zeros(0)

    def _density(self, x: Any) -> tuple[Any, Any]:
        """Log prior and log likelihood at one point."""
        from jax import numpy as jnp

        trace, zero = self._sites(x), jnp.zeros((), x.dtype)
        observed = (s for s in trace.values() if s["type"] == "sample" and s["is_observed"])
        likelihood = sum((jnp.sum(s["fn"].log_prob(s["value"])) for s in observed), zero)
        return self._entries(trace).sum(), likelihood

    def _density_and_slopes(self, x: Any) -> tuple[Any, Any, Any, Any]:
        """Log prior and log likelihood, and the gradient of each."""
        import jax
        from jax import numpy as jnp

        def both(x: Any) -> Any:
            return jnp.stack(self._density(x))

        value, pull = jax.vjp(both, x)
        one, other = jnp.eye(2, dtype=x.dtype)
        return value[0], value[1], pull(one)[0], pull(other)[0]

    def _pull_back(self, x: Any, outer: Any) -> tuple[Any]:
        import jax

        found: tuple[Any] = jax.vjp(lambda x: self._entries(self._sites(x)), x)[1](outer)
        return found

    def _draw(
        self, names: frozenset[str] | None, x: Any, taken: Any, seed: Any, row: Any
    ) -> tuple[Any, Any, Any]:
        """Values of all sites, ends of supports, and log prior by entry.

        Sites that are ``taken`` keep theirs: those with given names, or by numbers, one compiled
        program for all. The latter can't be inside a loop.
        """
        import jax
        from jax import numpy as jnp

        key = jax.random.fold_in(jax.random.PRNGKey(seed), row)
        values = self._unpacked(x)
        if names is None:
            given = {k: (values[k], taken[i]) for i, k in enumerate(values)}
            trace = self.program.traced(key, {}, given)
        else:
            trace = self.program.traced(key, {k: values[k] for k in names})
        drawn = jnp.concatenate([trace[k]["value"].reshape(-1) for k in values])
        return drawn, self._all_ends(trace), self._entries(trace)

    def _ends_of(self, x: Any) -> Any:
        return self._all_ends(self._sites(x))

    def _all_ends(self, trace: Mapping[str, Any]) -> Any:
        from jax import numpy as jnp

        each = [
            end.reshape(-1)
            for s in self.latents
            if s.support.ends
            for end in ends_of(trace[s.name]["fn"], s.shape)
        ]
        return jnp.concatenate(each) if each else jnp.zeros(0)

    def _pull_back_ends(self, x: Any, outer: Any) -> tuple[Any]:
        import jax

        found: tuple[Any] = jax.vjp(self._ends_of, x)[1](outer)
        return found

    # ---- of many points, in NumPy -------------------------------------------------------------

    def packed(self, values: Values, n: int) -> Array:
        """Points (n, P); sites that are missing have values of a prior draw."""
        found = np.empty((n, self.width), self.real)
        for name, place in self.places.items():
            if name not in values:
                found[:, place] = self.filler[place]
                continue
            value = values[name]
            self._check_precision(value.dtype == np.float64)
            found[:, place] = value.reshape(n, -1)
        return found

    def _check_precision(self, double: bool) -> None:
        if double and not self.x64:
            raise TargetError(
                f"{self.program.owner} computes in float32, as JAX was set when it was taken "
                "over, and the target in float64; call jax.config.update('jax_enable_x64', True) "
                "before from_numpyro, or leave the target's dtype out"
            )

    def by_names(self, x: Array) -> dict[str, Array]:
        n = len(x)
        return {k: x[:, at].reshape(n, *self.by_name[k].shape) for k, at in self.places.items()}

    def draws(self, n: int, given: Values, seed: int = 0) -> tuple[Array, Array, Array]:
        """Prior draws (n, P) given values of some sites, ends of supports, log prior by entry.

        The likelihood is not computed.
        """
        names = frozenset(given) if any(s.looped for s in self.latents) else None
        if names not in self._drawn:  # slow to compile: one size of batches
            function = partial(self._draw, names)
            self._drawn[names] = Batched(function, x64=self.x64, sizes=SIZES[-1:])
        taken = np.array([[k in given for k in self.places]], self.real).repeat(n, 0)
        seeds, rows = np.full(n, seed, np.uint32), np.arange(n, dtype=np.uint32)
        drawn, ends, entries = self._drawn[names](self.packed(given, n), taken, seeds, rows)
        return drawn, ends, entries

    def _try_draws(self) -> None:
        """Draw from the prior once: a point to fill in, and ends of supports."""
        with self.program.explained():
            drawn, ends, _ = self.draws(TRIED, {})
        start = 0
        for site in self.latents:
            size, found = math.prod(site.shape), []
            for _ in range(site.support.ends):
                place = slice(start, start + size)
                each = ends[:, place].reshape(TRIED, *site.shape)
                fixed = (each == each[:1]).all()
                found.append(constant(each[0]) if fixed else place)
                start += size
            self._ends_at[site.name] = found
        self.filler = drawn[0]

    # ---- as torch has them --------------------------------------------------------------------

    def fused(self, params: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Log prior and log likelihood of values by name, (C, *shape): (C,) each, nats."""
        n = len(next(iter(params.values())))
        for value in params.values():
            self._check_precision(value.dtype == torch.float64)
        x = torch.cat([params[k].reshape(n, -1) for k in self.places], 1).to(self.dtype)
        if torch.is_grad_enabled() and x.requires_grad:
            log_prior, log_likelihood = with_slopes(self._gradients, [x], 2, 1)
        else:
            log_prior, log_likelihood = self._densities.of_tensors(x)
        return log_prior, log_likelihood

    def log_likelihood(self, params: Mapping[str, Tensor]) -> Tensor:
        """Of values by name, (C, *shape): (C,), nats."""
        if not params:
            return torch.as_tensor(self._densities(self.packed({}, 1))[1])
        return self.fused(params)[1]

    def priors(self) -> dict[str, Any]:
        """The prior of each site."""
        like = torch.zeros((), dtype=self.dtype)
        found: dict[str, Any] = {}
        for site in self.latents:
            common = (site.batch_shape, site.event_shape)
            log_prob, sample = partial(self.log_prior, site), partial(self.sample, site)
            ends = self._ends_at[site.name]
            moving = any(isinstance(e, slice) for e in ends)
            support = partial(self.support, site) if moving else site.support.constraint(ends)
            if site.parents:
                found[site.name] = Conditional(
                    site.parents, log_prob, sample, support, *common, like=like
                )
            else:
                found[site.name] = Site(log_prob, sample, support, *common, like=like)
        return found

    def log_prior(self, site: NumPyroLatent, value: Tensor, given: Mapping[str, Tensor]) -> Tensor:
        """Log density of one site by batch entry, (C, *batch), nats."""
        names = [*given, site.name]
        found = through(_SiteDensity(self, names, site.name), [*given.values(), value])
        return found.reshape(len(value), *site.batch_shape)

    def sample(self, site: NumPyroLatent, n: int, given: Mapping[str, Tensor], seed: int) -> Tensor:
        """Prior draws of one site, (n, *shape)."""
        drawn, _, _ = self.draws(n, {k: on_host(v) for k, v in given.items()}, seed)
        at = self.places[site.name]
        return torch.from_numpy(drawn[:, at].reshape(n, *site.shape))

    def support(self, site: NumPyroLatent, given: Mapping[str, Tensor]) -> Any:
        """Where one site lies, its ends moved by the parameters before it."""
        like = next(iter(given.values()))
        ends = through(_Ends(self, list(given)), list(given.values()))
        shape = (len(like), *site.shape)
        each = [
            ends[:, at].reshape(shape) if isinstance(at, slice) else at
            for at in self._ends_at[site.name]
        ]
        tensors = [torch.as_tensor(x).to(like).expand(shape) for x in each]
        return site.support.constraint(tensors)

    # ---- NumPyro's own samplers ----------------------------------------------------------------

    def pilot(self, draws: int, seed: int, **options: Any) -> dict[str, Array]:
        """Posterior draws by NUTS; options are those of ``numpyro.infer.MCMC``."""
        import jax
        from numpyro.infer import MCMC, NUTS

        chains = options.pop("num_chains", 4)
        settings = {
            "num_warmup": 500,
            "num_samples": -(-draws // chains),
            "num_chains": chains,
            "chain_method": "vectorized",
            "progress_bar": False,
        } | options
        program = self.program
        with with_precision(self.x64):
            mcmc = MCMC(NUTS(program.function), **settings)
            mcmc.run(jax.random.PRNGKey(seed), *program.args, **program.kwargs)
            found = mcmc.get_samples()
            return {k: np.array(found[k])[:draws] for k in self.by_name}

    def predictions(self, values: Values, seed: int, **options: Any) -> dict[str, Array]:
        """Draws of the observed sites given parameters, by name, (n, *shape).

        Arguments:
            values: By NumPyro's name, (n, *shape).
            seed: Of the draws.
            options: Other arguments of the model function, by name, in place of those that it
                was taken over with: new predictors, say.
        """
        import jax
        from numpyro import handlers
        from numpyro.infer import Predictive

        program = self.program
        with with_precision(self.x64):
            free = handlers.uncondition(program.function)
            given = {k: np.asarray(v, self.real) for k, v in values.items()}
            predictive = Predictive(free, posterior_samples=given)
            args, kwargs = program.arguments(options)
            found = predictive(jax.random.PRNGKey(seed), *args, **kwargs)
            return {k: np.array(v) for k, v in found.items() if v.size}


class _SiteDensity:
    """Log density of one site as a function of arrays of its value and its parents'."""

    def __init__(self, compiled: Compiled, names: list[str], name: str) -> None:
        self.compiled, self.names = compiled, names
        self.at = compiled.entries[name]

    def _values(self, arrays: Any) -> dict[str, Array]:
        return dict(zip(self.names, arrays, strict=True))

    def value(self, arrays: Any) -> Array:
        values, n = self._values(arrays), len(arrays[-1])
        filler = self.compiled.by_names(np.repeat(self.compiled.filler[None], n, 0))
        return self.compiled.draws(n, {**filler, **values})[2][:, self.at]

    def pull_back(self, arrays: Any, outer: Array) -> list[Array]:
        x = self.compiled.packed(self._values(arrays), len(arrays[-1]))
        whole = np.zeros((len(x), self.compiled.n_entries), x.dtype)
        whole[:, self.at] = outer
        (slopes,) = self.compiled._pulled(x, whole)
        return [self.compiled.by_names(slopes)[k] for k in self.names]


class _Ends:
    """Ends of supports as a function of arrays of parameters."""

    def __init__(self, compiled: Compiled, names: list[str]) -> None:
        self.compiled, self.names = compiled, names

    def _points(self, arrays: Any) -> Array:
        return self.compiled.packed(dict(zip(self.names, arrays, strict=True)), len(arrays[0]))

    def value(self, arrays: Any) -> Array:
        return self.compiled._ends(self._points(arrays))[0]

    def pull_back(self, arrays: Any, outer: Array) -> list[Array]:
        x = self._points(arrays)
        (slopes,) = self.compiled._ends_pulled(x, outer.astype(x.dtype))
        return [self.compiled.by_names(slopes)[k] for k in self.names]
