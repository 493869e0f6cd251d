"""What a NumPyro function draws: its sites, and which of them can be sampled here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ..errors import TargetError, TRJError
from .jax_failures import BRANCHES, tracing_failure
from .numpyro_supports import Support, support_of_site

Trace = Mapping[str, Mapping[str, Any]]

LONGEST = 120  # letters of JAX's own messages that are quoted


@dataclass(frozen=True)
class Latent:
    """One site that has to be sampled.

    Attributes:
        name: NumPyro's.
        batch_shape: That its log density has.
        event_shape: The rest of the value's shape.
        support: Where its values lie.
        parents: Sites that its density depends on.
        dims: Names of its axes, by its plates and ``event_dims``; empty where some have none.
        looped: Whether it is drawn inside NumPyro's ``scan`` or ``cond``.
    """

    name: str
    batch_shape: tuple[int, ...]
    event_shape: tuple[int, ...]
    support: Support
    parents: tuple[str, ...]
    dims: tuple[str, ...]
    looped: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.batch_shape + self.event_shape


@dataclass(frozen=True)
class Program:
    """A function in NumPyro with its arguments.

    Attributes:
        owner: What to call it in messages.
        function, args, kwargs: What was given.
    """

    owner: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def arguments(self, new: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Positional and named ones, those of some names replaced."""
        new = dict(new)
        names = list(inspect.signature(self.function).parameters)
        args = [new.pop(k, old) for k, old in zip(names, self.args, strict=False)]
        return [*args, *self.args[len(args) :]], {**self.kwargs, **new}

    def traced(self, key: Any, values: Mapping[str, Any], given: Any = None) -> Trace:
        """Its sites at values of some of them; the others are drawn.

        Arguments:
            key: Of the draws.
            values: By name.
            given: By name values, and whether to take them and not the draws (a number).
        """
        from numpyro import handlers

        inner = handlers.seed(self.function, key)
        if values:
            inner = handlers.substitute(inner, data=dict(values))
        if given is not None:
            inner = _handlers()[0](inner, given)
        inner = _handlers()[1](inner, self.owner)
        with self.explained():
            found: Trace = handlers.trace(inner).get_trace(*self.args, **self.kwargs)
        return found

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Errors of the function, or of JAX that traces it, with what to do."""
        try:
            yield
        except TRJError:
            raise
        except Exception as error:
            raise TargetError(self._words(error)) from error

    def _words(self, error: Exception) -> str:
        """What to do where the function can't be traced."""
        name, text = type(error).__name__, (str(error).splitlines() or [""])[0]
        text = text if len(text) < LONGEST else text[:LONGEST] + " ..."
        if known := tracing_failure(error, "a value that it draws"):
            words = f"{self.owner}: the function {known[0]} ({text}); {known[1]}"
            if name not in BRANCHES:
                return words
            return (
                f"{words}. Every run must draw the same sites: make models with other sites "
                "entries of the list of models, each its own from_numpyro"
            )
        if name == "UnexpectedTracerError":
            return (
                f"{self.owner}: a site is drawn inside jax.lax.cond, scan or another "
                f"transformation ({text}); draw it before, and make models with other sites "
                "entries of the list of models"
            )
        if name == "NotImplementedError":
            return (
                f"{self.owner}: a site has no sampler in NumPyro ({text or name}), and prior draws "
                "are needed; state the model as trj.Joint"
            )
        return f"{self.owner}: the function failed, {name}: {text}"


@cache
def _handlers() -> tuple[Any, Any]:
    """Handlers of NumPyro: to take given values, and to look at sites before they are drawn."""
    from jax import numpy as jnp
    from numpyro.primitives import Messenger

    class Given(Messenger):
        """Takes values of sites, or draws, by numbers that may be traced."""

        def __init__(self, fn: Any, given: Mapping[str, tuple[Any, Any]]) -> None:
            self.given = given
            super().__init__(fn)

        def process_message(self, msg: dict[str, Any]) -> None:
            if msg["type"] != "sample" or msg["is_observed"] or msg["value"] is not None:
                return
            value, taken = self.given[msg["name"]]
            drawn = msg["fn"](**msg["kwargs"])
            msg["value"] = jnp.where(taken > 0, value, drawn)

    class Checked(Messenger):
        """Refuses distributions that can't be sampled here, and random numbers beside sites."""

        def __init__(self, fn: Any, owner: str) -> None:
            self.owner = owner
            super().__init__(fn)

        def process_message(self, msg: dict[str, Any]) -> None:
            if msg["type"] == "prng_key":
                raise TargetError(
                    f"{self.owner}: it draws random numbers beside its sites (numpyro.prng_key, or "
                    "a site that handlers.block hides): its density would be one of many. Every "
                    "random number must be a site that is seen: numpyro.sample"
                )
            if msg["type"] == "sample" and not msg["is_observed"]:
                check_latent(f"{self.owner}: site {msg['name']!r}", msg["fn"])

    return Given, Checked


def latent_names(trace: Trace) -> list[str]:
    """Sites to sample, in order."""
    return [k for k, s in trace.items() if s["type"] == "sample" and not s["is_observed"]]


def explored(program: Program) -> tuple[list[Latent], dict[str, int], dict[str, tuple[str, ...]]]:
    """The sites of a program that have to be sampled, sizes of its plates, its data.

    Data are the observed sites, with names of their axes where all have one.

    Nothing is computed: JAX traces shapes.

    Raises:
        TargetError: What it draws can't be sampled here, or it draws other sites each time.
    """
    import jax
    from numpyro.ops.provenance import eval_provenance

    kept: list[Trace] = []
    batches: dict[str, tuple[int, ...]] = {}
    supports: dict[str, Support] = {}

    def draw(seed: Any) -> int:
        kept.append(trace := program.traced(jax.random.PRNGKey(seed), {}))
        check_sites(program.owner, trace)
        for name in latent_names(trace):
            site = trace[name]
            batches[name] = tuple(site["fn"].log_prob(site["value"]).shape)
            supports[name] = support_of_site(program.owner, name, site["fn"])
        return 0

    seed = jax.ShapeDtypeStruct((), np.uint32)
    with program.explained():
        jax.eval_shape(draw, seed)
        jax.eval_shape(lambda s: draw(s), seed)
    trace = kept[0]
    check_same(program.owner, list(trace), list(kept[1]))
    names = latent_names(trace)
    values = {k: _like(trace[k]["value"]) for k in names}

    def densities(**given: Any) -> dict[str, Any]:
        sites = program.traced(jax.random.PRNGKey(0), given)
        return {k: sites[k]["fn"].log_prob(given[k]) for k in names}

    with program.explained():
        sources = eval_provenance(densities, **values) if names else {}
    latents = []
    for i, name in enumerate(names):
        shape, batch = values[name].shape, batches[name]
        if shape[: len(batch)] != batch:
            raise TargetError(
                f"{program.owner}: site {name!r} of shape {shape} has a log density of shape "
                f"{batch}; expected one number, or one for each entry of its first axes"
            )
        parents = tuple(k for k in names[:i] if k in sources[name])
        dims, looped = _dims(trace[name], shape), bool(trace[name].get("_control_flow_done"))
        latents.append(
            Latent(name, batch, shape[len(batch) :], supports[name], parents, dims, looped=looped)
        )
    data = {
        k: _dims(s, np.shape(s["value"]))
        for k, s in trace.items()
        if s["type"] == "sample" and s["is_observed"]
    }
    return latents, _plates(trace), data


def _like(value: Any) -> Any:
    import jax

    return jax.ShapeDtypeStruct(value.shape, value.dtype)


def check_same(owner: str, names: list[str], again: list[str]) -> None:
    """Refuse programs that draw other sites at another call."""
    if other := sorted(set(names) ^ set(again)):
        raise TargetError(
            f"{owner}: the function draws {other} at some calls and not at others. Every run must "
            "draw the same sites: make models with other sites entries of the list of models, "
            "each its own from_numpyro"
        )


def check_sites(owner: str, trace: Trace) -> None:
    """Refuse sites whose density is not that of the model, or that can't be sampled here."""
    for name, site in trace.items():
        kind, where = site["type"], f"{owner}: site {name!r}"
        if kind in {"param", "mutable"}:
            raise TargetError(
                f"{where} is a numpyro.{kind}, which has no prior; write numpyro.sample, or give "
                "the function a constant"
            )
        if kind == "plate":
            size, part = site["args"][:2]
            if part is not None and part != size:
                raise TargetError(
                    f"{where} is a plate that takes {part} of {size} data (mini-batches): its "
                    "likelihood is an estimate, and p(model | data) would be of another data set; "
                    "leave subsample_size out"
                )
        if kind != "sample":
            continue
        _check_scale(where, site)
        if site["is_observed"]:
            _check_data(where, site["value"])


def _check_scale(where: str, site: Mapping[str, Any]) -> None:
    scale = site["scale"]
    if scale is None or (isinstance(scale, int | float) and scale == 1):
        return
    shown = f" {scale:g}" if isinstance(scale, int | float) else ""
    raise TargetError(
        f"{where} has a scale{shown} on its log density (numpyro.handlers.scale, or a plate with "
        "subsample_size): prior or likelihood are no longer those of the data; leave it out, or "
        "state what is meant by numpyro.factor"
    )


def _check_data(where: str, value: Any) -> None:
    import jax

    if value is None or isinstance(value, jax.core.Tracer):
        return
    data = np.asarray(value)
    if np.issubdtype(data.dtype, np.floating) and bool(np.isnan(data).any()):
        raise TargetError(
            f"{where} has NaN among its data, {int(np.isnan(data).sum())} of {data.size}: NumPyro "
            "fills nothing in; leave these out, or draw them as a site of their own"
        )


def check_latent(where: str, fn: Any) -> None:
    """Refuse a distribution that has no density on numbers, or none that integrates to 1."""
    from numpyro import distributions as dist

    inner = fn
    while True:
        if isinstance(inner, dist.ImproperUniform):
            raise TargetError(
                f"{where} has the improper prior ImproperUniform, by which no evidence is defined; "
                "give it a proper one"
            )
        if isinstance(inner, dist.MaskedDistribution):
            raise TargetError(
                f"{where} is masked (numpyro.handlers.mask, or obs_mask of missing data), so that "
                "its prior does not integrate to 1; draw only what is there, or missing"
            )
        if isinstance(inner, dist.Delta):
            raise TargetError(
                f"{where} is a Delta, which has no density; write numpyro.deterministic, or the "
                "value"
            )
        nested = getattr(inner, "base_dist", None)
        if not isinstance(nested, dist.Distribution):
            break
        inner = nested
    try:
        discrete = bool(fn.support is not None and fn.support.is_discrete)
    except NotImplementedError:
        discrete = False
    if discrete:
        raise TargetError(
            f"{where} is discrete ({type(inner).__name__}): sum it out, as "
            "numpyro.distributions.MixtureSameFamily does for the components of a mixture, and "
            "make a few alternatives entries of the list of models"
        )


def _dims(site: Mapping[str, Any], shape: tuple[int, ...]) -> tuple[str, ...]:
    """Names of a site's axes as ArviZ has them; empty where some axis has none."""
    frames = sorted(site["cond_indep_stack"], key=lambda frame: frame.dim)
    names = [*(f.name for f in frames), *site.get("infer", {}).get("event_dims", ())]
    return tuple(names) if len(names) == len(shape) else ()


def _plates(trace: Trace) -> dict[str, int]:
    """Sizes of plates by name."""
    frames = (f for s in trace.values() for f in s.get("cond_indep_stack", ()))
    return {f.name: f.size for f in frames}
