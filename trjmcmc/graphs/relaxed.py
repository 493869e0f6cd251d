"""What graphs whose edges are there by degrees are worth, with gradients.

Matrices of many graphs stand as (parent, particle, sample, child), so that one product serves all.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple, cast

import torch
from torch import Tensor

from ..errors import ConfigurationError
from ..space.dags import Dags
from ..target.scores import LocalScores
from ..target.target import Target
from .network_equations import HiddenEquations, LinearEquations


class Workspace:
    """Tensors that are written anew at each step: fresh memory costs more than what fills it.

    Example:
        >>> room = Workspace()
        >>> room("a", torch.zeros(2)).data_ptr() == room("a", torch.ones(2)).data_ptr()
        True
    """

    def __init__(self) -> None:
        self._held: dict[str, Tensor] = {}

    def __call__(self, name: str, like: Tensor) -> Tensor:
        """A contiguous tensor of that name like another, whatever it holds."""
        held = self._held.get(name)
        if held is None or held.shape != like.shape or held.dtype != like.dtype:
            held = torch.empty(like.shape, dtype=like.dtype, device=like.device)
            self._held[name] = held
        return held


def by_parent(matrices: Tensor) -> Tensor:
    """(M, d, d) as (d, M, 1, d)."""
    return matrices.transpose(0, 1)[:, :, None]


class GraphLikelihood(ABC):
    """Log p(parameters, data | graph) of graphs by degrees, with gradients.

    Attributes:
        relaxed: Whether edges may be there by degrees.
    """

    relaxed = True

    @abstractmethod
    def value(self, edges: Tensor, theta: Tensor) -> Tensor:
        """Graphs (d, M, S, d) and coordinates of each particle (M, D) -> (M, S), nats."""

    @abstractmethod
    def by_edges(self, edges: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
        """The value, and its gradient by the edges, (d, M, S, d)."""

    @abstractmethod
    def by_theta(self, edges: Tensor, theta: Tensor) -> Tensor:
        """Gradient by the coordinates, (M, D), averaged over samples by their values."""


class ScoreLikelihood(GraphLikelihood):
    """Of local scores: edges are there or not."""

    relaxed = False

    def __init__(self, scores: LocalScores) -> None:
        self.scores = scores

    def value(self, edges: Tensor, theta: Tensor) -> Tensor:
        d, m, s, _ = edges.shape
        bit = torch.arange(d, device=edges.device)
        masks = (edges.long() << bit[:, None, None, None]).sum(0)
        return self.scores.of(masks.flatten(0, 1)).view(m, s)

    def by_edges(self, edges: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
        raise ConfigurationError("local scores know edges that are there or not")

    def by_theta(self, edges: Tensor, theta: Tensor) -> Tensor:
        return torch.zeros_like(theta)


class Parametric(GraphLikelihood):
    """Of any target with parameters of edges: those are multiplied by how far their edge is there,
    and their prior counts in proportion."""

    def __init__(self, target: Target) -> None:
        self.target, self.space = target, cast("Dags", target.space)

    def _evaluate(self, edges: Tensor, theta: Tensor) -> Tensor:
        samples = edges.shape[2]
        items = edges.permute(1, 2, 0, 3)[:, :, self.space.parent_of, self.space.child_of]
        items = items.flatten(0, 1)
        none = torch.zeros_like(items)
        many = theta.repeat_interleave(samples, 0)
        log_prior, log_likelihood = self.target.with_presence(none, items, many)
        return (log_prior + log_likelihood).view(-1, samples)

    @torch.no_grad()
    def value(self, edges: Tensor, theta: Tensor) -> Tensor:
        return self._evaluate(edges, theta)

    def by_edges(self, edges: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            edges = edges.detach().requires_grad_()
            value = self._evaluate(edges, theta.detach())
            (gradient,) = torch.autograd.grad(value.sum(), edges)
        return value.detach(), gradient

    def by_theta(self, edges: Tensor, theta: Tensor) -> Tensor:
        with torch.enable_grad():
            theta = theta.detach().requires_grad_()
            value = self._evaluate(edges, theta).logsumexp(1)
            (gradient,) = torch.autograd.grad(value.sum(), theta)
        return gradient


class LinearLikelihood(GraphLikelihood):
    """Of linear equations with known noise and normal weights, by products of the data.

    Arguments:
        target: Whose likelihood is :class:`~trjmcmc.graphs.network_equations.LinearEquations`.
    """

    def __init__(self, target: Target) -> None:
        equations = cast("LinearEquations", target.equations)
        space = cast("Dags", target.space)
        self.parent_of, self.child_of = space.parent_of, space.child_of
        self.matrix, self.nodes = space.matrix, len(space.nodes)
        self._room = Workspace()
        self.gram = equations.products.to(target.device, target.dtype)
        self.noise, self.sd = equations.noise, equations.weight_sd
        free = equations.rows_of_node.to(target.device, target.dtype)
        squares = self._own.squeeze().diagonal().sum() if self.nodes > 1 else self.gram.sum()
        normal = -0.5 * math.log(2 * math.pi * self.noise) * free.sum()
        self.constant = normal - squares / (2 * self.noise)
        self.prior_constant = -0.5 * math.log(2 * math.pi * self.sd**2)

    def _parts(self, edges: Tensor, theta: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Pull of the weights that are there, and what does not depend on the sample.

        With W = edges x weights and products S of the data these are S W, shape (d, M, S, d), and
        of shape (d, M, 1, d): weights / (2 noise), the slope of the value by edges that are all
        off, the weights.
        """
        weights = by_parent(self.matrix(theta))
        w = torch.mul(edges, weights, out=self._room("weights", edges))
        if self.gram.dim() == 2:
            pull = self._room("pull", edges)
            torch.mm(self.gram, w.view(len(w), -1), out=pull.view(len(w), -1))
        else:  # data of a node leave out rows in which it was set
            pull = torch.einsum("jik,kmsj->imsj", self.gram, w)
        half = weights / (2 * self.noise)
        penalty = self.prior_constant - weights.square() / (2 * self.sd**2)
        return pull, half, penalty + 2 * half * self._own, weights

    @property
    def _own(self) -> Tensor:
        """Products with each node, (d, 1, 1, d)."""
        if self.gram.dim() == 2:
            return self.gram[:, None, None]
        return self.gram.diagonal(dim1=0, dim2=2)[:, None, None]

    def _value(self, edges: Tensor, pull: Tensor, half: Tensor, first: Tensor) -> Tensor:
        terms = self._room("terms", pull)
        torch.addcmul(first, half, pull, value=-1, out=terms).mul_(edges)
        return self.constant + terms.sum(3).sum(0)

    def value(self, edges: Tensor, theta: Tensor) -> Tensor:
        pull, half, first, _ = self._parts(edges, theta)
        return self._value(edges, pull, half, first)

    def by_edges(self, edges: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
        pull, half, first, _ = self._parts(edges, theta)
        value = self._value(edges, pull, half, first)
        slope = self._room("terms", pull)
        return value, torch.addcmul(first, half, pull, value=-2, out=slope)

    def by_theta(self, edges: Tensor, theta: Tensor) -> Tensor:
        pull, half, first, weights = self._parts(edges, theta)
        share = self._value(edges, pull, half, first).softmax(1)
        there = over_samples(edges, share)
        found = there * (self._own / self.noise - weights / self.sd**2)[:, :, 0]
        found = found - over_samples(pull.mul_(edges), share) / self.noise
        return found.transpose(0, 1)[:, self.parent_of, self.child_of]


SLOPES = {  # of activations, by their values
    "relu": lambda u: u.sign(),
    "tanh": lambda u: 1 - u.square(),
    "sigmoid": lambda u: u * (1 - u),
}


class _Layer(NamedTuple):
    """Parameters of all networks of M particles.

    Attributes:
        first: Weights and, as the last parent, biases of hidden units, (H, d + 1, M, d).
        second: Weights of the output, (H, M, d).
        bias: Of the output, (M, d).
        by_edge: Log prior density of the weights of each edge, (d, M, 1, d).
        by_node: That of all other parameters together, (M,).
    """

    first: Tensor
    second: Tensor
    bias: Tensor
    by_edge: Tensor
    by_node: Tensor


class Hidden(GraphLikelihood):
    """Of networks with one hidden layer, unit by unit, with gradients by hand.

    Arguments:
        target: Whose likelihood is :class:`~trjmcmc.graphs.network_equations.HiddenEquations`.
    """

    def __init__(self, target: Target) -> None:
        self.equations = cast("HiddenEquations", target.equations)
        self.target, self.space = target, cast("Dags", target.space)
        self.bend = {"relu": torch.relu_, "tanh": torch.tanh_, "sigmoid": torch.sigmoid_}[
            self.equations.activation
        ]
        self.slope = SLOPES[self.equations.activation]
        rows = self.equations.rows.to(target.device, target.dtype)
        self._x = torch.cat([rows, torch.ones_like(rows[:, :1])], 1)
        self._free = self.equations.free.to(target.device)
        self._constant = -0.5 * math.log(2 * math.pi * self.equations.noise)
        self._room = Workspace()

    def _layer(self, theta: Tensor) -> _Layer:
        """Differentiable in the coordinates (M, D)."""
        every = self.space.together().expand(len(theta), -1)
        values = self.target.padded_values(every, theta)
        first = self.space.matrix(values["w"]).permute(3, 1, 0, 2)  # (H, d, M, d)
        own = {
            name: torch.stack([values[f"{node}.{name}"] for node in self.space.nodes], -1)
            for name in ("c", "v", "b")
        }
        first = torch.cat([first, own["c"].transpose(0, 1)[:, None]], 1)
        density = self.target.prior_by_slot(every, theta)
        item = self.space.slot_item
        of_edges = density[:, item < self.space.n_items].unflatten(1, (self.space.n_items, -1))
        by_edge = by_parent(self.space.matrix(of_edges.sum(2)))
        by_node = density[:, item == self.space.n_items].sum(1)
        return _Layer(first, own["v"].transpose(0, 1), own["b"], by_edge, by_node)

    def _node(self, j: int, edges: Tensor, layer: _Layer) -> tuple[Tensor, Tensor, Tensor]:
        """Hidden units (H, n, M S), residuals over the noise (n, M S) of a node, and its rows."""
        d, m, s, _ = edges.shape
        x = self._x if bool(self._free[:, j].all()) else self._x[self._free[:, j]]
        there = torch.cat([edges[..., j], edges.new_ones(1, m, s)])  # the bias always is
        h = len(layer.first)
        units = self._room("units", x.new_empty(1).expand(h, len(x), m * s))
        mean = self._room("mean", units[0])
        mean.copy_(layer.bias[:, j, None].expand(m, s).reshape(1, -1))
        for k in range(h):
            weight = (there * layer.first[k, :, :, None, j]).view(d + 1, -1)
            torch.mm(x, weight, out=units[k])
            self.bend(units[k])
            out = layer.second[k, :, j, None].expand(m, s).reshape(1, -1)
            mean.addcmul_(units[k], out)
        residual = torch.sub(x[:, j, None], mean, out=mean).div_(self.equations.noise)
        return units, residual, x

    def _back(self, residual: Tensor, unit: Tensor) -> Tensor:
        """Residuals times the slope of a hidden unit, (n, M S)."""
        return torch.mul(residual, self.slope(unit), out=self._room("back", unit))

    def _of(self, residual: Tensor, m: int) -> Tensor:
        """Log density of a node by its residuals, (M, S)."""
        squares = residual.square().sum(0).view(m, -1)
        return len(residual) * self._constant - 0.5 * self.equations.noise * squares

    @torch.no_grad()
    def value(self, edges: Tensor, theta: Tensor) -> Tensor:
        layer, m = self._layer(theta), edges.shape[1]
        found = (edges * layer.by_edge).sum((0, 3)) + layer.by_node[:, None]
        for j in range(len(edges)):
            found = found + self._of(self._node(j, edges, layer)[1], m)
        return found

    @torch.no_grad()
    def by_edges(self, edges: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
        layer, (d, m, s, _) = self._layer(theta), edges.shape
        value = (edges * layer.by_edge).sum((0, 3)) + layer.by_node[:, None]
        slope = torch.zeros(d, d, m, s, dtype=edges.dtype, device=edges.device)  # (child, parent)
        for j in range(d):
            units, residual, x = self._node(j, edges, layer)
            value = value + self._of(residual, m)
            for k, unit in enumerate(units):
                pull = (x[:, :d].T @ self._back(residual, unit)).view(d, m, s)
                weight = layer.first[k, :d, :, j] * layer.second[k, :, j]
                slope[j].addcmul_(pull, weight[..., None])
        return value, layer.by_edge + slope.permute(1, 2, 3, 0)

    def by_theta(self, edges: Tensor, theta: Tensor) -> Tensor:
        d, m, s, _ = edges.shape
        with torch.enable_grad():
            theta = theta.detach().requires_grad_()
            layer = self._layer(theta)
        held = _Layer(*(x.detach() for x in layer))
        h = len(held.first)
        value = (edges * held.by_edge).sum((0, 3)) + held.by_node[:, None]
        pulls = self._room("pulls", edges.new_empty(1).expand(d, h, d + 1, m * s))
        outs = self._room("outs", edges.new_empty(1).expand(d, h + 1, m * s))
        with torch.no_grad():  # of each sample, for their shares are known in the end alone
            for j in range(d):
                units, residual, x = self._node(j, edges, held)
                value = value + self._of(residual, m)
                for k, unit in enumerate(units):
                    torch.mm(x.T, self._back(residual, unit), out=pulls[j, k])
                    outs[j, k] = torch.mul(residual, unit, out=self._room("back", unit)).sum(0)
                outs[j, h] = residual.sum(0)
        share = value.softmax(1)
        there = over_samples(edges, share)  # (d, M, d)
        both = torch.cat([edges, edges.new_ones(1, m, s, d)]).permute(3, 0, 1, 2)
        first = torch.einsum("jkims,jims,ms->kimj", pulls.view(d, h, d + 1, m, s), both, share)
        out = torch.einsum("jkms,ms->kmj", outs.view(d, h + 1, m, s), share)
        slopes = (first * held.second[:, None], out[:h], out[h])
        with torch.enable_grad():
            total = layer.by_node.sum() + (there[:, :, None] * layer.by_edge).sum()
            for x, slope in zip(layer[:3], slopes, strict=True):
                total = total + (x * slope).sum()
            (found,) = torch.autograd.grad(total, theta)
        return found


def over_samples(matrices: Tensor, share: Tensor) -> Tensor:
    """Means of (d, M, S, d) over samples by their shares (M, S), shape (d, M, d)."""
    return torch.matmul(share[None, :, None], matrices)[:, :, 0]


def likelihood_of(target: Target) -> GraphLikelihood:
    """How a target's likelihood is evaluated on graphs by degrees."""
    if target.scores is not None:
        return ScoreLikelihood(target.scores)
    equations = target.equations
    if isinstance(equations, LinearEquations):
        return LinearLikelihood(target)
    if isinstance(equations, HiddenEquations):
        return Hidden(target)
    return Parametric(target)
