"""A Pyro model as a function of the values of its latent sites."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, Multinomial

from ..errors import TargetError, TRJError
from ..rng import seeded
from ..target.support import unchecked
from .extras import needed
from .foreign import copied

TRACES = 8  # prior draws at which a model must have the same sites

See = Callable[[Any], None]  # what is done with the message of a sample site

OPAQUE = (
    "; where the model branches on values use torch.where, or pass vectorized=False, which calls "
    "it point by point (slow)"
)


def load_pyro() -> Any:
    """Pyro, which sets torch's argument checks for the whole process when it is imported."""
    before = Distribution._validate_args
    try:
        return needed("pyro", "pyro", "from_pyro")
    finally:
        Distribution.set_default_validate_args(before)


@cache
def _walk() -> Any:
    """The effect handler below; a function, as Pyro is imported on first use."""
    load_pyro()
    from pyro.poutine.messenger import Messenger

    class Walk(Messenger):
        """Sets sites to values, and shows each sample site as it is passed."""

        def __init__(self, values: Mapping[str, Tensor], see: See, before: See | None) -> None:
            super().__init__()
            self.values, self.see, self.before = values, see, before

        def _pyro_sample(self, message: Any) -> None:
            name = message["name"]
            if name in self.values and not message["is_observed"]:
                message["value"] = self.values[name]
            elif self.before is not None:
                self.before(message)

        def _pyro_post_sample(self, message: Any) -> None:
            self.see(message)

        def _pyro_param(self, message: Any) -> None:
            raise TargetError(
                f"pyro.param {message['name']!r} is neither a prior nor data: give it a prior "
                "(pyro.sample), or write its value as a number"
            )

    return Walk


@dataclass(frozen=True)
class PyroLatent:
    """A latent site, or one that is observed, at one prior draw.

    Attributes:
        name: Of the site.
        fn: Its distribution.
        value: The draw.
        plates: Names of the plates it stands in, by their axis, -1 the last of the batch.
    """

    name: str
    fn: Distribution
    value: Tensor
    plates: Mapping[int, str]


class PyroProgram:
    """A Pyro model, called with values for its latent sites.

    Arguments:
        owner: What to call it in messages.
        f: The model.
        args, kwargs: What it is called with; copied.
        dtype: Precision of the values; None takes that of the joint.
        vectorized: Whether one call serves a batch of points.

    Attributes:
        latents: Its latent sites, in their order.
        observed: Its observed sites.
        dtype: Precision of the joint.

    Raises:
        TargetError: It holds what is neither a normalised prior of numbers nor data.
    """

    def __init__(
        self,
        owner: str,
        f: Callable[..., Any] | None,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        dtype: torch.dtype | None,
        vectorized: bool,
    ) -> None:
        if not callable(f):
            raise TargetError(f"{owner}: expected a Pyro model, a function, got {f!r}")
        self.owner, self.f, self.vectorized = owner, f, vectorized
        self.args, self.kwargs = copied(args), copied(kwargs)
        with unchecked(), torch.no_grad(), _new_parameters_dropped():
            self.dtype = dtype or torch.get_default_dtype()
            self.dtype = dtype or self._precision()
            self.observed: dict[str, PyroLatent] = {}
            traces = [self._trace(seed) for seed in range(TRACES)]
            self.latents = {x.name: x for x in traces[0]}
            self._check_sites(traces)

    @property
    def examples(self) -> dict[str, Tensor]:
        """A prior draw of each latent site."""
        return {name: x.value for name, x in self.latents.items()}

    def draws(self, n: int) -> dict[str, Tensor]:
        """Prior draws of each latent site, (n, *shape)."""
        with unchecked(), torch.no_grad():
            found = [{x.name: x.value for x in self._trace(seed)} for seed in range(n)]
        return {k: torch.stack([x[k] for x in found]) for k in self.latents}

    def walk(self, values: Mapping[str, Tensor], see: See, before: See | None = None) -> None:
        """Call the model with latent sites at given values.

        Arguments:
            values: By site, without a batch axis; sites that are missing are drawn.
            see: Called at each sample site, with Pyro's message.
            before: Called before a site that is drawn or observed has its value.
        """
        with default_precision(self.dtype), _walk()(values, see, before):
            self.f(*self.args, **self.kwargs)

    def point(self, values: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Log prior and log likelihood of one point, nats."""
        parts = [torch.zeros((), dtype=self.dtype), torch.zeros((), dtype=self.dtype)]
        left = set(values)

        def see(message: Any) -> None:
            if not _counts(message):
                return
            name = message["name"]
            if name not in values and not message["is_observed"]:
                raise self._other_sites([name])
            left.discard(name)
            which = name not in values
            parts[which] = parts[which] + _log_prob(message).sum()

        self.walk(values, see)
        if left:
            raise self._other_sites(left)
        return parts[0], parts[1]

    def batch(self, params: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Log prior and log likelihood of C points, (C,) each, nats."""
        values = {name: params[name] for name in self.latents}
        return self.mapped(self.point, values)

    def mapped(self, function: Callable[[dict[str, Tensor]], Any], values: Any) -> Any:
        """A function of one point at each of a batch; tensors, or a tuple or list of them."""
        if self.vectorized:
            return torch.func.vmap(function)(values)
        n = len(next(iter(values.values())))
        found = [function({k: v[i] for k, v in values.items()}) for i in range(n)]
        if isinstance(found[0], Tensor):
            return torch.stack(found)
        return tuple(torch.stack(x) for x in zip(*found, strict=True))

    def check_batches(self) -> None:
        """Refuse a model that can't be called with a batch of points.

        Raises:
            TargetError: It fails, with what to do.
        """
        values = {k: v.expand(2, *v.shape) for k, v in self.examples.items()}
        if not values or not self.vectorized:
            return
        try:
            with unchecked(), torch.no_grad():
                self.batch(values)
        except TRJError:
            raise
        except Exception as error:
            said = str(error).split("\n")[0]
            if "data-dependent control flow" in said or ".item()" in said:
                said = f"it has data-dependent control flow ({said})"
            elif "random" in said:
                raise TargetError(
                    f"{self.owner} draws random numbers beside its sites: every random number of "
                    f"a model must be a site that is seen (pyro.sample, no poutine.block): {said}"
                ) from error
            raise TargetError(f"{self.owner} can't be called in batches: {said}{OPAQUE}") from error

    # ---- what sites there are ---------------------------------------------------------------

    def _trace(self, seed: int) -> list[PyroLatent]:
        """Latent sites at a prior draw."""
        found: list[PyroLatent] = []

        def before(message: Any) -> None:
            refuse(message, self.owner)

        def see(message: Any) -> None:
            if not _counts(message):
                return
            name, fn, value = message["name"], message["fn"], message["value"]
            plates = {p.dim: p.name for p in message["cond_indep_stack"] if p.vectorized}
            if not _is_latent(message):
                self.observed[name] = PyroLatent(name, fn, value, plates)
                return
            if value.is_floating_point():  # what the model goes on with
                message["value"] = value = value.to(self.dtype)
            found.append(PyroLatent(name, fn, value, plates))

        with seeded(seed):
            self._called({}, see, before)
        return found

    def _called(self, values: Mapping[str, Tensor], see: See, before: See) -> None:
        try:
            self.walk(values, see, before)
        except TRJError as error:
            if str(error).startswith("pyro.param"):
                raise TargetError(f"{self.owner}: {error}") from None
            raise
        except Exception as error:
            remedy = (
                "; state its precision: from_pyro(..., dtype=torch.float64), or torch's own by "
                "torch.set_default_dtype"
                if "dtype" in str(error)
                else ""
            )
            raise TargetError(
                f"{self.owner} failed at a prior draw, {type(error).__name__}: {error}{remedy}"
            ) from error

    def _precision(self) -> torch.dtype:
        """That of the joint: data in float64 make it double."""
        parts: list[Tensor] = []

        def see(message: Any) -> None:
            if _counts(message):
                parts.append(_log_prob(message))

        try:
            with seeded(0):
                self._called({}, see, lambda message: refuse(message, self.owner))
        except TargetError as error:
            if "dtype" in str(error.__cause__):  # of matrices in double, say
                return torch.float64
            raise
        found = {torch.as_tensor(x).dtype for x in parts} or {torch.get_default_dtype()}
        return torch.float64 if torch.float64 in found else torch.float32

    def _check_sites(self, traces: Sequence[Sequence[PyroLatent]]) -> None:
        """Refuse models whose sites come and go with values."""
        shapes = [{x.name: tuple(x.value.shape) for x in trace} for trace in traces]
        for other in shapes[1:]:
            if other != shapes[0]:
                raise self._other_sites(
                    {name for name, _ in set(shapes[0].items()) ^ set(other.items())}
                )

    def _other_sites(self, names: Iterable[str]) -> TargetError:
        return TargetError(
            f"{self.owner} has other sites, or sites of other shapes, from draw to draw "
            f"({', '.join(sorted(names))}): make a model of each structure, and let trj.Target "
            "choose between them"
        )


def refuse(message: Any, owner: str) -> None:
    """Refuse what is neither a normalised prior of numbers nor data, before it is drawn.

    Raises:
        TargetError: With what to do instead.
    """
    fn, name = message["fn"], message["name"]
    where = f"site {name!r} of {owner}"
    if type(fn).__name__ == "_Subsample":
        if fn.subsample_size is not None and fn.subsample_size < fn.size:
            raise TargetError(
                f"plate {name!r} of {owner} takes a random mini-batch of {fn.subsample_size} of "
                f"{fn.size}: its likelihood is a random number. Leave out subsample_size"
            )
        return
    if not isinstance(fn, Distribution):
        raise TargetError(f"{where}: expected a distribution, got {fn!r}")
    if not _is_one(message["scale"]):
        raise TargetError(
            f"{where} is scaled by {message['scale']} (a mini-batch, or poutine.scale): its "
            "density is not that of the data. Give it all data, without a scale"
        )
    if message["infer"].get("_deterministic"):
        return
    if message["is_observed"]:
        _refuse_missing(message, where)
        return
    inner = _kinds(fn)
    if message["mask"] is not None and message["mask"] is not True:
        raise TargetError(
            f"{where} is masked (obs_mask, or poutine.mask): masked entries have no normalised "
            "prior. Give what is missing a site of its own, of as many entries as are missing"
        )
    if inner & {"ImproperUniform", "MaskedDistribution"}:
        raise TargetError(
            f"{where} has an improper prior, under which no model has an evidence: give it a "
            "normalised one"
        )
    if "Delta" in inner:
        raise TargetError(
            f"{where} has all its mass at one point (Delta): make it a number, or "
            "pyro.deterministic"
        )
    if _is_discrete(fn):
        raise TargetError(
            f"{where} is discrete: sum it out (MixtureSameFamily, or pyro.factor with the sum), "
            "or let the model index choose (one model for each value)"
        )


def _refuse_missing(message: Any, where: str) -> None:
    value, mask = message["value"], message["mask"]
    if isinstance(value, Tensor) and value.is_floating_point() and mask is None:
        missing = int(value.isnan().sum())
        if missing:
            raise TargetError(
                f"{where} is observed with {missing} NaN: missing data are parameters. Give them "
                "a site of their own, and observe the rest"
            )


def _kinds(fn: Any) -> set[str]:
    """Names of the classes of a distribution and of those inside it."""
    found = set[str]()
    while isinstance(fn, Distribution):
        found.add(type(fn).__name__)
        fn = vars(fn).get("base_dist")
    return found


def _is_discrete(fn: Distribution) -> bool:
    try:
        return bool(fn.support.is_discrete)  # type: ignore[union-attr]
    except (NotImplementedError, AttributeError):
        return False


def _is_one(scale: Any) -> bool:
    return bool((torch.as_tensor(scale) == 1).all())


def _counts(message: Any) -> bool:
    """Whether a site has a density of its own."""
    return type(message["fn"]).__name__ != "_Subsample" and not message["infer"].get(
        "_deterministic"
    )


def _is_latent(message: Any) -> bool:
    return _counts(message) and not message["is_observed"]


def _log_prob(message: Any) -> Tensor:
    """Log density of a site by batch entry, masked as the model says."""
    fn, value, mask = message["fn"], message["value"], message["mask"]
    if isinstance(fn, Multinomial):
        log_prob = _multinomial(fn, value)
    else:
        log_prob = fn.log_prob(value, *message["args"], **message["kwargs"])
    if mask is None or mask is True:
        return torch.as_tensor(log_prob)
    if mask is False:
        return torch.zeros_like(log_prob)
    return torch.where(mask, log_prob, 0.0)


def _multinomial(fn: Multinomial, counts: Tensor) -> Tensor:
    """torch's log density, which writes through a mask: not in a batch."""
    constant = torch.lgamma(counts.sum(-1) + 1) - torch.lgamma(counts + 1).sum(-1)
    return constant + torch.where(counts == 0, 0.0, counts * fn.logits).sum(-1)


@contextmanager
def default_precision(dtype: torch.dtype) -> Iterator[None]:
    """Let torch make numbers of a model's precision, ``Normal(0.0, 1.0)`` as well."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def _new_parameters_dropped() -> Iterator[None]:
    """Leave Pyro's store of parameters as it was."""
    import pyro

    store = pyro.get_param_store()
    before = set(store.keys())
    try:
        yield
    finally:
        for name in set(store.keys()) - before:
            del store[name]
