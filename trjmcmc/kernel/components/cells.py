"""Where in the range of a component signals differ."""

from __future__ import annotations

import torch
from torch import Tensor

from .amplitudes import Amplitudes

TOLD_APART = 0.2  # mean squared sine between signals from which a coordinate tells them apart

COMPARED = 256  # pairs of prior draws of which that is taken

COARSE = 32  # intervals of the first coordinate to begin with

ALIKE = 0.8  # squared cosine of the signals at the ends of an interval that is not halved

BASES = 4  # prior draws of the other coordinates at which intervals are compared

FINEST = 2.0**-17  # shortest interval, in prior probability

BINS = 8  # intervals of the second coordinate

NUMBERS = 2**21  # most numbers in the signals of all cells

OUTSIDE = 1e-3  # prior probability beyond each end that has no cells


class Cells:
    """Cells of one or two coordinates of a component, each with a signal of its own.

    The first coordinate is the one that turns the signal most, as a frequency or a place does; its
    range is halved until neighbours are alike. The second, if one more turns it, is cut in a few.

    Arguments:
        amplitudes: What the signal is linear in.
        theta: Points that hold the shared parameters, shape (n, D).
        x: Components drawn from the prior, shape (n, P).

    Attributes:
        columns: Coordinates that are cut, at most two; none where none turns the signal.
        number: J.
        log_mass: Log prior probability of each cell, shape (J,).
        log_size: Log of the cells' sizes in their coordinates, shape (J,).
        signals: Of each cell's middle, as in ``Amplitudes.basis``, (J, L, points).

    Example:
        >>> from trjmcmc import problems
        >>> from trjmcmc.target.exchangeable import components_of
        >>> (pulses,) = components_of(problems.pulses())
        >>> _, theta = pulses.examples(torch.Generator().manual_seed(0), 2000)
        >>> x = pulses.one(theta, torch.zeros(2000, dtype=torch.long))
        >>> Cells(Amplitudes(pulses.single, theta, x), theta, x).columns  # centre and width
        [1, 2]
    """

    def __init__(self, amplitudes: Amplitudes, theta: Tensor, x: Tensor) -> None:
        self.amplitudes, self._theta, self.number = amplitudes, theta, 0
        places = amplitudes.single.places.values()
        scalar = [place.start for place in places if place.stop - place.start == 1]
        sines = {c: self._sine(x, c) for c in scalar if not bool(amplitudes.columns[c])}
        self.columns = sorted(
            (c for c, sine in sines.items() if sine > TOLD_APART), key=lambda c: -sines[c]
        )[:2]
        if not self.columns:
            return
        q = torch.arange(1, len(x) + 1, dtype=torch.float64, device=x.device) / (len(x) + 1)
        inside = (q > OUTSIDE) & (q < 1 - OUTSIDE)
        self._q, self._values = q[inside], x.double().sort(0).values[inside]
        edges = [self._halved(x), self._even(BINS)][: len(self.columns)]
        edges = [self._distinct(c, e) for c, e in zip(self.columns, edges, strict=True)]
        if any(len(e) < 2 for e in edges):
            self.columns = []
            return
        self.edges = [self._at(c, e) for c, e in zip(self.columns, edges, strict=True)]
        mass = _grid([e.diff() for e in edges])
        self.log_mass = (mass / mass.sum()).log()
        self.log_size = _grid([e.diff() for e in self.edges]).log()
        self.number = len(mass)
        middle = x.double().median(0).values.repeat(self.number, 1)
        for column, edge, place in zip(self.columns, edges, self._places(self.number), strict=True):
            middle[:, column] = self._at(column, 0.5 * (edge[1:] + edge[:-1]))[place]
        self.signals = self._signals(middle.to(x))

    def _signals(self, x: Tensor) -> Tensor:
        rows = torch.arange(len(x), device=x.device) % len(self._theta)
        return self.amplitudes.basis(self.amplitudes.single.values(self._theta[rows], x))

    def _sine(self, x: Tensor, column: int) -> float:
        """Mean squared sine between signals that differ in one coordinate alone."""
        n = min(COMPARED, len(x) // 2)
        here, there = x[:n], x[:n].clone()
        there[:, column] = x[n : 2 * n, column]
        return float(1 - _cosine(self._signals(here), self._signals(there)).mean())

    def _at(self, column: int, q: Tensor) -> Tensor:
        """Coordinate at prior probabilities, by interpolation between draws."""
        values = self._values[:, column]
        place = torch.searchsorted(self._q, q.contiguous()).clamp(1, len(self._q) - 1)
        share = (q - self._q[place - 1]) / (self._q[place] - self._q[place - 1])
        return values[place - 1] + share * (values[place] - values[place - 1])

    def _distinct(self, column: int, q: Tensor) -> Tensor:
        """Probabilities without those where the coordinate does not rise: draws may be alike."""
        rises = self._at(column, q).diff() > 0
        return q[torch.nn.functional.pad(rises, (1, 0), value=True)]

    def _even(self, intervals: int) -> Tensor:
        return torch.linspace(OUTSIDE, 1 - OUTSIDE, intervals + 1).to(self._q)

    def _halved(self, x: Tensor) -> Tensor:
        """Prior probabilities of the first coordinate between which signals are alike."""
        column, base = self.columns[0], x[:BASES]
        bins = BINS if len(self.columns) > 1 else 1
        amplitudes = self.amplitudes
        most = NUMBERS // (max(1, amplitudes.size) * amplitudes.points * bins)

        def at(edges: Tensor) -> Tensor:
            points = base.repeat(len(edges), 1)
            points[:, column] = self._at(column, edges).to(x).repeat_interleave(len(base))
            return self._signals(points).unflatten(0, (len(edges), -1))

        edges = self._even(min(COARSE, max(1, most)))
        signals = at(edges)
        while True:
            cosine = _cosine(signals[1:].flatten(0, 1), signals[:-1].flatten(0, 1))
            alike = cosine.unflatten(0, (len(edges) - 1, -1)).mean(1) >= ALIKE
            halved = ~alike & (edges.diff() > FINEST)
            number = int(halved.sum())
            if not number or len(edges) - 1 + number > most:
                return edges
            middle = 0.5 * (edges[1:] + edges[:-1])[halved]
            edges, order = torch.cat([edges, middle]).sort()
            signals = torch.cat([signals, at(middle)])[order]

    # ---- which cell ---------------------------------------------------------------------------

    def _places(self, number: int) -> list[Tensor]:
        """The intervals of all cells, by coordinate."""
        return self._intervals(torch.arange(number, device=self._q.device))

    def _intervals(self, cell: Tensor) -> list[Tensor]:
        if len(self.edges) == 1:
            return [cell]
        bins = len(self.edges[1]) - 1
        return [cell // bins, cell % bins]

    def draw(self, cell: Tensor, generator: torch.Generator) -> Tensor:
        """Uniform coordinates in cells, (C,) -> (C, columns), float64."""
        found = []
        for edges, place in zip(self.edges, self._intervals(cell), strict=True):
            u = torch.rand(len(cell), generator=generator, device=cell.device, dtype=edges.dtype)
            found.append(edges[place] + u * (edges[place + 1] - edges[place]))
        return torch.stack(found, 1)

    def of(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The cell of components (C, P), and whether they are in any, (C,) each."""
        cell = torch.zeros(len(x), dtype=torch.long, device=x.device)
        inside = torch.ones_like(cell, dtype=torch.bool)
        for column, edges in zip(self.columns, self.edges, strict=True):
            place = torch.searchsorted(edges, x[:, column].double().contiguous(), right=True) - 1
            inside &= (place >= 0) & (place < len(edges) - 1)
            cell = cell * (len(edges) - 1) + place.clamp(0, len(edges) - 2)
        return cell, inside


def _grid(sizes: list[Tensor]) -> Tensor:
    """Sizes of the cells whose sides are given, shape (J,)."""
    return sizes[0] if len(sizes) == 1 else (sizes[0][:, None] * sizes[1]).flatten()


def _cosine(x: Tensor, y: Tensor) -> Tensor:
    """Mean squared cosine between spans of signals, (N, L, points) each -> (N,)."""
    x, y = (torch.linalg.qr(s.mT).Q for s in (x, y))
    return (x.mT @ y).square().sum((1, 2)).nan_to_num(0.0) / x.shape[2]
