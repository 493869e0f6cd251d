"""Targets: priors and likelihoods as one log joint density on padded unconstrained coordinates."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from ..errors import BudgetError, NonFiniteError, ShapeError, TargetError, TRJError
from ..grouping import apply_by_group
from ..rng import seeded
from ..space.base import Space, check_names
from ..space.codes import distinct
from ..space.model_list import ModelList
from ..space.prior import LogWeights, normalised_log_prior
from .additive import Additive
from .densities import prior_by_slot, refill
from .density import PROBES, Density, undefined_values
from .likelihood import Array, LogLikelihood, Quantity, each_kind
from .model import Model, Truth
from .prior import PriorSpec
from .support import unchecked


class Target:
    """The posterior over models and parameters, up to its normalising constant.

    Two forms. A list of models, each with its own priors and likelihood::

        Target([Model(...), Model(...)], model_prior=[0.5, 0.5])

    and a large space with one batched likelihood for all models::

        Target(Subsets(names, of="beta"), priors={"beta": ..., "sigma": ...}, log_likelihood=f)

    where ``f(params, active)`` gets per-item parameters of shape (C, items, ...), zero where
    ``active`` (C, items) is False; with several kinds of components ``active`` is a dict by kind.
    The prior of a per-item parameter is for one item, shared by all, or has a leading dimension
    of one entry an item.

    Arguments:
        models: Models, or a :class:`Space`.
        priors: Large form only: prior of each parameter.
        log_likelihood: Large form only: function of (params, active).
        model_prior: List form only: probabilities, :class:`LogWeights`, or a distribution over
            the index; None is uniform. Spaces carry their own prior.
        surrogate: Large form only, as in :class:`Model`.
        vectorized: Large form only, as in :class:`Model`.
        truth: Known answers, if any.
        dtype: Precision that parameters reach the likelihood in, torch's default if omitted;
            state it where the likelihood holds data of another.
        device: Where parameters live, the CPU if omitted; the likelihood's data must be there.

    Attributes:
        space: The bound model space.
        dim: D, padded unconstrained coordinates.
        evaluations: Likelihood evaluations so far, those for gradients included; surrogates do
            not count.
        limit: Most evaluations that are allowed, infinite unless set.
        gradients: Evaluations of likelihoods or surrogates that were differentiated.
        overflows: How often a likelihood was NaN or +inf at a point far out in the tail of the
            prior, or with parameters whose square overflows, a tensor; such points count as
            impossible. Anywhere else it is an error.

    Raises:
        TargetError, ShapeError, NonFiniteError: The statement of the problem is wrong; every
            likelihood is called once at a few prior draws to find out.

    Source:
        Padded (saturated) state space: Brooks, Giudici & Roberts (2003),
        https://doi.org/10.1111/1467-9868.03711

    Example:
        >>> from torch.distributions import Normal
        >>> from trjmcmc import Subsets
        >>> x, y = torch.eye(3), torch.tensor([1.0, 0.0, 2.0])
        >>> target = Target(
        ...     Subsets(["a", "b", "c"], of="beta"),
        ...     priors={"beta": Normal(0.0, 1.0)},
        ...     log_likelihood=lambda p, active: -(y - p["beta"] @ x).square().sum(-1),
        ... )
        >>> code = target.space.code_of("a+c")
        >>> target.log_joint(code[None], torch.tensor([[1.0, 0.0, 2.0]])).shape
        torch.Size([1])
    """

    overflows: Tensor
    gradients: int
    limit: float
    _densities: list[Density]
    _power = 1.0

    def __init__(
        self,
        models: Sequence[Model] | Space,
        priors: Mapping[str, PriorSpec] | None = None,
        log_likelihood: LogLikelihood | None = None,
        *,
        model_prior: Sequence[float] | Tensor | Distribution | LogWeights | None = None,
        surrogate: LogLikelihood | None = None,
        vectorized: bool = True,
        truth: Truth | None = None,
        dtype: torch.dtype | None = None,
        device: str | torch.device | None = None,
    ) -> None:
        self.truth = truth
        self.dtype = dtype or torch.get_default_dtype()
        self.device = torch.device(device or "cpu")
        # prior draws that find out shapes come from the global generator: leave it as it was
        with seeded(0, self.device), torch.no_grad():
            if isinstance(models, Space):
                if model_prior is not None:
                    raise TargetError("model_prior: a space carries its own prior; pass it there")
                self._init_shared(models, priors, log_likelihood, surrogate, vectorized)
            else:
                if priors is not None or log_likelihood is not None or surrogate is not None:
                    raise TargetError(
                        "priors, log_likelihood, surrogate: with a list of models each model "
                        "carries its own; these arguments go with a space"
                    )
                self._init_list(models, model_prior)
            self.space.to(self.device, self.dtype)
            self._densities = [d.to(self.dtype, self.device) for d in self._densities]
            self._reset_counts()
            self._probe()

    def _init_list(self, models: Sequence[Model], model_prior: Any) -> None:
        if isinstance(models, Model):
            raise TargetError("models: expected a list of models, got one; write Target([model])")
        models = list(models)
        for model in models:
            if not isinstance(model, Model):
                raise TargetError(f"models: expected trj.Model objects, got {model!r}")
        names = [model.name for model in models]
        check_names(names, "models")
        log_prior = normalised_log_prior(model_prior, len(models), "model_prior")
        self._densities = [
            Density(f"model {m.name!r}", m.priors, m.log_likelihood, m.vectorized, m.surrogate)
            for m in models
        ]
        width: dict[str, int] = {}
        ranks: dict[str, int] = {}
        for density in self._densities:
            for block in density.blocks:
                name, rank = block.prior.name, len(block.prior.shape)
                if ranks.setdefault(name, rank) != rank:
                    raise TargetError(
                        f"prior of {name!r} in {density.owner}: has {rank} dimensions here and "
                        f"{ranks[name]} in another model; give it as many (torch.Size([1]) for a "
                        "vector of one), or another name"
                    )
                width[name] = max(width.get(name, 0), block.prior.size)
        starts, self.dim = {}, 0
        for name, size in width.items():
            starts[name], self.dim = self.dim, self.dim + size
        slots = torch.zeros(len(models), self.dim, dtype=torch.bool)
        for m, density in enumerate(self._densities):
            for block in density.blocks:
                block.start = starts[block.prior.name]
                slots[m, block.slots] = True
        self.slot_names = _slot_names(width)
        self.space: Space = ModelList(names, slots, log_prior)

    def _init_shared(
        self,
        space: Space,
        priors: Mapping[str, PriorSpec] | None,
        log_likelihood: LogLikelihood | None,
        surrogate: LogLikelihood | None,
        vectorized: bool,
    ) -> None:
        if priors is None or log_likelihood is None:
            raise TargetError("priors, log_likelihood: both are needed with a space")
        if missing := [name for name in space.of if name not in priors]:
            raise TargetError(f"priors: {missing}, named by the space's `of`, have no prior")
        owner = f"the {type(space).__name__} target"
        density = Density(owner, priors, log_likelihood, vectorized, surrogate, space)
        self._densities = [density]
        self.dim = density.width
        slot_item = torch.full((self.dim,), space.n_items)
        for block in density.blocks:
            if block.items is not None:
                items = torch.arange(block.items.start, block.items.stop)
                each = block.prior.size // max(len(items), 1)
                slot_item[block.slots] = items.repeat_interleave(each)
        self.slot_names = _slot_names({b.prior.name: b.prior.size for b in density.blocks})
        self.space = space.bind(slot_item)

    # ---- evaluation -------------------------------------------------------------------------

    def log_prior_and_likelihood(
        self,
        code: Tensor,
        theta: Tensor,
        *,
        surrogate: bool = False,
        total: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Log prior (model, parameters and Jacobian) and log likelihood.

        Arguments:
            code: Models, shape (C, L), int64.
            theta: Padded unconstrained coordinates, shape (C, D); spare slots are ignored.
            surrogate: Use the models' smooth surrogates where they have one.
            total: What the components add up to, (C, *data), if the likelihood is
                :class:`Additive` and that is known.

        Raises:
            BudgetError: ``limit`` does not allow as many evaluations.

        Returns:
            Two tensors of shape (C,), nats. Where the prior is -inf the likelihood is finite
            and has no meaning. A likelihood that is NaN or +inf far out in the prior's tail
            (numbers that overflow) is taken as impossible and counted in ``overflows``.
        """
        dear = not surrogate or any(d.surrogate is None for d in self._densities)
        if dear and self.evaluations + len(theta) > self.limit:
            raise BudgetError(
                f"{len(theta)} likelihood evaluations are needed next and "
                f"{max(0, int(self.limit) - self.evaluations)} are left; raise max_evaluations"
            )
        log_model = self.space.log_prior(code)
        with unchecked():
            if len(self._densities) == 1:
                items = self.space.items(code) if self._densities[0].shared else None
                log_prior, log_likelihood, far = self._densities[0].evaluate(
                    theta, items, surrogate, total
                )
            else:
                log_prior, log_likelihood, far = apply_by_group(
                    code[:, 0],
                    [partial(d.evaluate, items=None, surrogate=surrogate) for d in self._densities],
                    theta,
                    self._anchors,
                )
        self.overflows = self.overflows + far.sum()
        return log_model + log_prior, log_likelihood

    def with_presence(self, bits: Tensor, items: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Log prior and log likelihood of subsets whose items are present by degrees.

        Arguments:
            bits: Units, 0 to 1, shape (C, L).
            items: Presence of each item, shape (C, I); parameters are multiplied by it.
            theta: Coordinates of all items, present or not, shape (C, D).

        Returns:
            Two tensors of shape (C,), nats, differentiable in the presence.
        """
        (density,) = self._densities
        with unchecked():
            log_prior, log_likelihood, _ = density.evaluate(theta, items, True)
        return self.space.graded_log_prior(bits) + log_prior, log_likelihood

    def log_joint(self, code: Tensor, theta: Tensor, total: Tensor | None = None) -> Tensor:
        """log p(model) p(theta | model) p(data | theta, model) |d params / d theta|.

        Arguments:
            code: Models, shape (C, L), int64.
            theta: Padded unconstrained coordinates, shape (C, D); spare slots are ignored.
            total: As for :meth:`log_prior_and_likelihood`.

        Returns:
            Shape (C,), nats; -inf outside the support; NaN where the likelihood is NaN.
        """
        log_prior, log_likelihood = self.log_prior_and_likelihood(code, theta, total=total)
        log_joint = log_prior + self._power * log_likelihood
        return torch.where(log_prior == -math.inf, log_prior, log_joint)

    @contextmanager
    def tempered(self, power: float) -> Iterator[None]:
        """The log joint with the likelihood to a power in (0, 1], in the block alone."""
        self._power = power
        try:
            yield
        finally:
            self._power = 1.0

    def log_joint_and_grad(
        self,
        code: Tensor,
        theta: Tensor,
        *,
        temper: float | Tensor = 1.0,
        surrogate: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Tempered log joint, likelihood to the power ``temper``, and its gradient.

        Arguments:
            code: Models, shape (C, L).
            theta: Padded coordinates, shape (C, D).
            temper: Exponent of the likelihood in [0, 1], one number or shape (C,).
            surrogate: Use the models' smooth surrogates where they have one.

        Returns:
            Values, shape (C,), nats, and gradients, shape (C, D), zero in spare slots.
        """
        self.gradients += len(theta)
        with torch.enable_grad():
            leaf = theta.detach().requires_grad_()
            log_prior, log_likelihood = self.log_prior_and_likelihood(
                code, leaf, surrogate=surrogate
            )
            value = log_prior + self._power * temper * log_likelihood
            if not value.requires_grad:  # no parameters
                return value, torch.zeros_like(theta)
            (gradient,) = torch.autograd.grad(value.sum(), leaf, allow_unused=True)
        gradient = torch.zeros_like(theta) if gradient is None else gradient
        value = torch.where(log_prior == -math.inf, log_prior, value)
        return value.detach(), torch.where(self.space.active(code), gradient, 0.0)

    def check_finite(self, code: Tensor, theta: Tensor, log_joint: Tensor) -> None:
        """Raise if any log joint is NaN or +inf, naming a model and its parameter values."""
        bad = undefined_values(log_joint)
        if bool(bad.any()):
            first = int(bad.nonzero()[0, 0])
            raise self.non_finite(code[first], theta[first], int(bad.sum()))

    def non_finite(self, code: Tensor, theta: Tensor, count: int) -> NonFiniteError:
        """The error that describes a point with a NaN or infinite density."""
        where = self.describe(code, theta)
        density = self._density_of(code)
        items = self.space.items(code[None]) if density.shared else None
        if known := density.undefined_prior(theta[None], items):
            return NonFiniteError(
                f"{known}; it was met in {where}. Return -inf from log_prob where values are "
                "impossible, or state the support.",
                count=count,
                where=where,
            )
        return NonFiniteError(
            f"log density is NaN or +inf at {count} point(s), one of them {where}. "
            "Return -inf from log_likelihood where the data are impossible, and mend the rest.",
            count=count,
            where=where,
        )

    @property
    def evaluations(self) -> int:
        return sum(d.evaluations for d in self._densities)

    @property
    def differentiable(self) -> bool:
        """Whether gradients of every likelihood (or its surrogate) can be had."""
        return all(d.differentiable for d in self._densities)

    @property
    def additive(self) -> Additive | None:
        """The likelihood, if it is :class:`Additive`."""
        return self._densities[0].additive

    def total(self, code: Tensor, theta: Tensor) -> Tensor:
        """What the components of an additive likelihood add up to, float64, (C, *data)."""
        assert self.additive is not None
        items = self.space.items(code)
        with unchecked():
            shown = self._densities[0].shown(theta, items)
            return self.additive.total(shown, self.space.by_kind(items))

    def contribution(self, theta: Tensor, kind: int = 0) -> Tensor:
        """What the first component of a kind adds at each point, float64, (C, *data)."""
        assert self.additive is not None
        which = self.space.kinds[kind]
        first = torch.arange(self.space.n_items, device=theta.device) == which.first
        with unchecked():
            shown = self._densities[0].shown(theta, first.expand(len(theta), -1))
            return self.additive.of_one(shown, which.name).double()

    def describe(self, code: Tensor, theta: Tensor) -> str:
        """One point in words: model label and constrained values."""
        label = self.space.label(code[None])[0]
        values = self.values(code[None], theta[None])
        shown = ", ".join(f"{n}={_short(v[0])}" for n, v in values[label].items())
        return f"model {label!r}" + (f" with {shown}" if shown else "")

    # ---- parameters -------------------------------------------------------------------------

    def _density_of(self, code: Tensor) -> Density:
        shared = self._densities[0].shared
        return self._densities[0 if shared else int(code[0])]

    def values(self, code: Tensor, theta: Tensor) -> dict[str, dict[str, Tensor]]:
        """Constrained parameters by model label.

        Arguments:
            code: Models, shape (C, L).
            theta: Padded coordinates, shape (C, D).

        Returns:
            For each model that occurs, its parameters in the user's names, each with leading
            size the number of rows of that model, in their order. Per-item parameters hold
            the items in use only.
        """
        result: dict[str, dict[str, Tensor]] = {}
        models, which, _ = distinct(code)
        for m, label in enumerate(self.space.label(models)):
            result[label] = self.constrain(models[m], theta[which == m])
        return result

    def constrain(self, code: Tensor, theta: Tensor) -> dict[str, Tensor]:
        """Constrained parameters of points of one model.

        Arguments:
            code: One model, shape (L,).
            theta: Padded coordinates, shape (n, D).

        Returns:
            By name, shape (n, *shape); per-item parameters hold the items in use only.
        """
        density = self._density_of(code)
        items = self.space.items(code[None]).expand(len(theta), -1) if density.shared else None
        with unchecked():
            values = density.constrain(theta, items)
        if items is not None:
            used = self.space.items(code[None])[0]
            for block in density.blocks:
                if block.items is not None:
                    values[block.prior.name] = values[block.prior.name][:, used[block.items]]
        return values

    def padded_values(self, code: Tensor, theta: Tensor) -> dict[str, Tensor]:
        """Constrained parameters of points of any models, padded to the largest with NaN.

        Arguments:
            code: Models, shape (N, L).
            theta: Padded coordinates, shape (N, D).

        Returns:
            By name, shape (N, *largest shape).
        """
        result: dict[str, Tensor] = {}
        for g, density in enumerate(self._densities):
            rows = torch.arange(len(code)) if density.shared else (code[:, 0] == g).nonzero()[:, 0]
            items = self.space.items(code) if density.shared else None
            with unchecked():
                values = density.constrain(theta[rows], items) if len(rows) else {}
            for block in density.blocks:
                name, shape = block.prior.name, block.prior.shape
                old = result.get(name)
                if old is None:
                    old = theta.new_full((len(code), *shape), math.nan)
                elif grow := [max(a, b) - a for a, b in zip(old.shape[1:], shape, strict=True)]:
                    pad = [n for extra in reversed(grow) for n in (0, extra)]
                    old = torch.nn.functional.pad(old, pad, value=math.nan)
                result[name] = old
                if not len(rows):
                    continue
                value = values[name]
                if items is not None and block.items is not None:
                    on = items[:, block.items].reshape(value.shape[:2] + (1,) * (value.dim() - 2))
                    value = torch.where(on, value, math.nan)
                where: tuple[Any, ...] = (rows, *(slice(n) for n in shape))
                result[name][where] = value
        return result

    def unconstrain(self, model: Any, params: Mapping[str, Any]) -> Tensor:
        """Padded coordinates of constrained values of one model.

        Arguments:
            model: Label of the model.
            params: By name, arrays of shape (n, *shape); per-item parameters hold the items
                in use only, as :meth:`constrain` returns them.

        Returns:
            Shape (n, D).
        """
        code = self.space.code_of(model)
        density = self._density_of(code)
        names = [block.prior.name for block in density.blocks]
        if not isinstance(params, Mapping) or set(names) != set(params):
            got = list(params) if isinstance(params, Mapping) else type(params).__name__
            raise ShapeError(
                f"params of model {model!r}: expected a dict with the parameters {names}, got {got}"
            )
        values = {
            name: torch.as_tensor(params[name], dtype=self.dtype, device=self.device)
            for name in names
        }
        if len({len(v) if v.dim() else 0 for v in values.values()}) > 1:
            shapes = {name: tuple(v.shape) for name, v in values.items()}
            raise ShapeError(
                f"params of model {model!r}: expected as many draws of each, got {shapes}"
            )
        for block in density.blocks:
            name, value = block.prior.name, values[block.prior.name]
            expected = block.prior.shape[block.items is not None :]
            if value.shape[1 + (block.items is not None) :] != expected:
                raise ShapeError(
                    f"{name!r} of model {model!r}: expected draws of shape "
                    f"{('n', *block.prior.shape)}, got {tuple(value.shape)}; chains and draws "
                    "belong into one leading dimension"
                )
        items = None
        if density.shared:
            used = self.space.items(code[None].to(self.device))
            items = used.expand(len(next(iter(values.values()))), -1)
            for block in density.blocks:
                if block.items is not None:
                    given = values[block.prior.name]
                    full = block.prior.constrain(
                        given.new_zeros(len(given), block.prior.size), values
                    ).clone()
                    full[:, used[0, block.items]] = given
                    values[block.prior.name] = full
        theta = density.unconstrain(values, items, self.dim)
        return torch.where(self.space.active(code[None].to(self.device)), theta, 0.0)

    def sample_prior(self, code: Tensor, generator: torch.Generator) -> Tensor:
        """Padded coordinates drawn from the parameters' prior, (C, L) -> (C, D).

        Rows whose draw falls on the boundary of the support in floating point come out as
        infinite; spare slots are zero.
        """
        theta = torch.zeros(len(code), self.dim, dtype=self.dtype, device=self.device)
        seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
        with seeded(seed, self.device), torch.no_grad():
            for g, density in enumerate(self._densities):
                rows = slice(None) if density.shared else code[:, 0] == g
                n = len(theta[rows])
                if n and density.blocks:
                    items = self.space.items(code) if density.shared else None
                    draws = density.sample(n, items)
                    theta[rows] = density.unconstrain(draws, items, self.dim).to(theta)
        return torch.where(self.space.active(code), theta, 0.0)

    # ---- births and deaths ------------------------------------------------------------------

    def kept(self, old: Tensor, new: Tensor) -> Tensor:
        """Slots that hold the same entry of the same parameter in both models, (C, D), bool."""
        both = self.space.active(old) & self.space.active(new)
        if self._densities[0].shared:
            return both
        return both & (self._entry_sizes[old[:, 0]] == self._entry_sizes[new[:, 0]])

    def refill(self, code: Tensor, theta: Tensor, keep: Tensor, seed: int) -> Tensor:
        """Draw entries of the parameters from their priors, given those that are kept.

        Arguments:
            code: Models, shape (C, L).
            theta: Padded coordinates, shape (C, D).
            keep: Slots to keep, shape (C, D), bool; see :meth:`kept`.
            seed: Of the prior draws.

        Returns:
            Shape (C, D); infinite where a draw falls on the boundary of the support.
        """
        with seeded(seed, self.device), torch.no_grad(), unchecked():
            if self._densities[0].shared:
                filled = self._densities[0].refill(theta, keep, self.space.items(code))
            else:
                (filled,) = apply_by_group(
                    code[:, 0],
                    [partial(refill, d) for d in self._densities],
                    torch.cat([theta, keep.to(theta.dtype)], -1),
                    torch.cat([self._anchors, torch.ones_like(self._anchors)], -1),
                )
        return torch.where(self.space.active(code), filled, 0.0)

    def prior_by_slot(self, code: Tensor, theta: Tensor) -> Tensor:
        """Log prior density of each entry of each parameter, on the first of its slots.

        Shape (C, D), nats, zero elsewhere; the Jacobian is inside, p(model) is not.
        """
        with unchecked():
            if self._densities[0].shared:
                by_slot = self._densities[0].prior_by_slot(theta, self.space.items(code))
            else:
                (by_slot,) = apply_by_group(
                    code[:, 0],
                    [partial(prior_by_slot, d) for d in self._densities],
                    theta,
                    self._anchors,
                )
        return torch.where(self.space.active(code), by_slot, 0.0)

    def log_prior_change(
        self, code: Tensor, theta: Tensor, priors: Mapping[str, PriorSpec]
    ) -> Tensor:
        """Log of other priors over the present ones of some parameters, shape (C,), nats.

        Arguments:
            code: Models, shape (C, L).
            theta: Padded coordinates, shape (C, D).
            priors: By name, distributions of the shape of the present ones.

        Raises:
            TargetError: No model has such a parameter.
        """
        known = {b.prior.name for d in self._densities for b in d.blocks}
        if missing := sorted(set(priors) - known):
            raise TargetError(f"priors: no parameter {missing}; there are {sorted(known)}")
        change = theta.new_zeros(len(theta))
        with unchecked():
            for g, density in enumerate(self._densities):
                rows = slice(None) if density.shared else (code[:, 0] == g).nonzero()[:, 0]
                items = self.space.items(code) if density.shared else None
                change[rows] = density.log_prior_change(theta[rows], items, priors)
        return change

    def apply(self, function: Any, code: Tensor, theta: Tensor) -> Array:
        """A function called as the likelihood is, at points of one model.

        Arguments:
            function: Of named parameters, and in a space of items of what is active; gives one
                value a point, or a number for all of them.
            code: One model, shape (L,).
            theta: Padded coordinates, shape (n, D).

        Returns:
            Shape (n, ...).

        Raises:
            ConfigurationError: The function failed, or returned values of another shape.
        """
        density = self._density_of(code)
        quantity = Quantity(function, f"model {self.space.label(code[None])[0]!r}", "predict: f")
        if not density.shared:
            return quantity(self.constrain(code, theta), len(theta))
        items = self.space.items(code[None]).expand(len(theta), -1)
        with unchecked():
            shown = density.shown(theta, items)
        return quantity(shown, len(theta), self.space.by_kind(items))

    def layout(self, code: Tensor) -> dict[str, tuple[slice, str, int]]:
        """Where the parameters of a model lie, shape (L,) -> by name slots, kind and length.

        The kind is ``"entries"`` (a vector of numbers with densities of their own),
        ``"simplex"`` (a vector on the simplex) or ``"other"``; the length is that of the vector.
        """
        return {
            b.prior.name: (b.slots, b.prior.kind, b.prior.shape.numel())
            for b in self._density_of(code).blocks
        }

    def bounded(self, code: Tensor) -> set[str]:
        """Parameters of a model, shape (L,), that have a largest or a smallest value."""
        return {b.prior.name for b in self._density_of(code).blocks if b.prior.bounded}

    def positive_slots(self, code: Tensor) -> Tensor:
        """Slots of parameters on the half-line above zero, of one model, shape (D,), bool."""
        positive = torch.zeros(self.dim, dtype=torch.bool, device=self.device)
        for block in self._density_of(code).blocks:
            positive[block.slots] = block.prior.positive
        return positive & self.space.active(code[None].to(self.device))[0]

    # ---- construction -----------------------------------------------------------------------

    def to(
        self, *, dtype: torch.dtype | None = None, device: Any = None, probe: bool = True
    ) -> Target:
        """A copy in another precision or on another device; the original is untouched.

        Tensors inside the user's functions stay where they are.

        Arguments:
            dtype, device: What to change.
            probe: Call every likelihood once there; a copy that only converts parameters
                does without.
        """
        new = copy.copy(self)
        new.dtype = dtype or self.dtype
        new.device = torch.device(device or self.device)
        if (new.dtype, new.device) == (self.dtype, self.device):
            return self
        new.space = copy.deepcopy(self.space).to(new.device, new.dtype)
        new._densities = [d.to(new.dtype, new.device) for d in self._densities]
        new._reset_counts()
        if probe:
            with seeded(0, new.device), torch.no_grad():
                new._probe()
        return new

    def _reset_counts(self) -> None:
        self.gradients, self.limit = 0, math.inf
        for density in self._densities:
            density.evaluations = 0
        self.overflows = torch.zeros((), dtype=torch.long, device=self.device)

    def _probe(self) -> None:
        """Call every likelihood once at prior draws: shapes, NaN, points mixed up."""
        count = len(self._densities)
        sizes = torch.zeros(count, self.dim, dtype=torch.long)
        for g, density in enumerate(self._densities):
            for block in density.blocks:
                sizes[g, block.slots] = block.entry_size
        self._entry_sizes = sizes.to(self.device)
        self._anchors = torch.zeros(count, self.dim, dtype=self.dtype, device=self.device)
        for g, density in enumerate(self._densities):
            if density.shared:
                generator = torch.Generator(self.device).manual_seed(0)
                code = self.space.examples(PROBES, generator)
            else:
                code = torch.full((PROBES, 1), g, device=self.device)
            theta = torch.zeros(PROBES, self.dim, dtype=self.dtype, device=self.device)
            items = self.space.items(code) if density.shared else None
            if density.blocks:
                draws = density.sample(PROBES, items)
                theta = density.unconstrain(draws, items, self.dim).to(theta)
            theta = torch.where(theta.isfinite() & self.space.active(code), theta, 0.0)
            for surrogate in (False, True) if density.surrogate else (False,):
                what = "surrogate" if surrogate else "log_likelihood"
                self._probe_one(density, code, theta, items, surrogate, what)
                if self.space.counts:
                    self._probe_padding(density, theta, items, what)
            with unchecked():
                log_prior, log_likelihood, _ = density.evaluate(theta, items, False)
            finite = (log_prior + log_likelihood).isfinite()
            self._anchors[g] = theta[finite.int().argmax()]

    def _probe_one(
        self,
        density: Density,
        code: Tensor,
        theta: Tensor,
        items: Tensor | None,
        surrogate: bool,
        what: str,
    ) -> None:
        with unchecked():
            log_prior, batch, _ = density.evaluate(theta, items, surrogate)
            first = items[:1] if items is not None else None
            _, one, _ = density.evaluate(theta[:1], first, surrogate)
        counted = torch.where(log_prior == -math.inf, log_prior, log_prior + batch)
        self.check_finite(code, theta, counted)
        tolerance = 1e-3 * (1 + batch[0].abs())
        if bool(counted[0].isfinite()) and not bool((batch[0] - one[0]).abs() <= tolerance):
            raise ShapeError(
                f"{what} of {density.owner}: point 0 gives {float(one[0]):.6g} alone and "
                f"{float(batch[0]):.6g} in a batch; the function mixes the points of a batch"
            )

    def _probe_padding(
        self, density: Density, theta: Tensor, items: Tensor | None, what: str
    ) -> None:
        """Compare a likelihood with itself where arrays end with the last component."""
        function = density.likelihood if what == "log_likelihood" else density.surrogate
        assert items is not None and function is not None
        if function.foreign or density.additive is not None:
            return
        with unchecked():
            shown = density.shown(theta, items)
            padded = function(shown, len(theta), self.space.by_kind(items))
            for row in items.sum(1).argsort(descending=True).tolist():  # one alone would broadcast
                on = items[row]
                cut = {name: v[row : row + 1] for name, v in shown.items()}
                for kind in self.space.kinds:
                    cut |= {name: cut[name][:, on[kind.items]] for name in kind.of}
                active = each_kind(self.space.by_kind(on[None]), lambda x: x[:, x[0]])
                try:
                    alone = float(function(cut, 1, active)[0])
                except TRJError:
                    if bool(on.any()):  # it insists on arrays of full length
                        return
                    continue  # it can't do with none
                there, k = float(padded[row]), int(on.sum())
                if not math.isclose(alone, there, rel_tol=1e-3, abs_tol=1e-3):
                    raise TargetError(
                        f"{what} of {density.owner}: {k} component(s) give {alone:.6g} alone and "
                        f"{there:.6g} beside {items.shape[1] - k} that are not there and read as "
                        "zero. Leave those out: torch.where(active, ..., 0), or write it as "
                        "trj.Additive"
                    )


def _slot_names(width: Mapping[str, int]) -> list[str]:
    return [f"{name}[{i}]" if n > 1 else name for name, n in width.items() for i in range(n)]


def _short(value: Tensor) -> str:
    flat = [f"{v:.6g}" for v in value.flatten().tolist()]
    return flat[0] if len(flat) == 1 else "[" + ", ".join(flat) + "]"
