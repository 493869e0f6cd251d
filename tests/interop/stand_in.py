"""A class with the methods of ``bridgestan.StanModel``, for programs written in torch.

Densities are those of Stan: constraints by their own transforms (simplexes by isometric log
ratios), constants of ``~`` kept by ``propto=False`` and those of declared bounds left out.
"""

import json
import math

import numpy as np
import torch

DOUBLE = torch.float64


class Real:
    """Numbers on the line; what constraints have in common."""

    def __init__(self, *shape):
        self.shape = self.unc_shape = shape

    def size(self, shape):
        return math.prod(shape)

    def constrain(self, u):
        return u, torch.zeros((), dtype=DOUBLE)

    def unconstrain(self, x):
        return x


class Lower(Real):
    def constrain(self, u):
        return u.exp(), u.sum()

    def unconstrain(self, x):
        if bool((x < 0).any()):
            raise RuntimeError("lub_free: Bounded variable is -1, but must be in the interval")
        return x.log()


class Bounded(Real):
    def constrain(self, u):
        p = torch.sigmoid(u)
        return -1 + 3 * p, (math.log(3) + p.log() + (1 - p).log()).sum()

    def unconstrain(self, x):
        return ((x + 1) / 3).logit()


class Ordered(Real):
    def constrain(self, u):
        return torch.cat([u[:1], u[1:].exp()]).cumsum(0), u[1:].sum()

    def unconstrain(self, x):
        return torch.cat([x[:1], x.diff().log()])


class Simplex(Real):
    """Isometric log ratios, since 2025: not the stick-breaking of torch."""

    def __init__(self, n):
        super().__init__(n)
        self.unc_shape = (n - 1,)
        basis = torch.zeros(n, n - 1, dtype=DOUBLE)
        for j in range(1, n):
            basis[:j, j - 1] = 1 / math.sqrt(j * (j + 1))
            basis[j, j - 1] = -math.sqrt(j / (j + 1))
        self.basis = basis

    def constrain(self, u):
        log_x = torch.log_softmax(self.basis @ u, 0)
        return log_x.exp(), log_x.sum() + 0.5 * math.log(len(log_x))

    def unconstrain(self, x):
        return self.basis.T @ x.log()


class Program:
    """What a Stan program is: parameters, a log density, generated quantities."""

    def __init__(self, parameters, log_density, generate=None, quantities=None, fast=None):
        self.parameters, self.log_density, self.fast = parameters, log_density, fast
        self.generate, self.quantities = generate, quantities or {}


PROGRAMS = {}


class StandIn:
    """The signatures are BridgeStan's; ``test_stan.py`` compares them where that is installed."""

    def __init__(self, model_lib, data=None, *, seed=1234, warn=True):
        del seed, warn
        self.lib_path, self.data = str(model_lib), data or ""
        self.program = PROGRAMS[self.lib_path]
        self.values = json.loads(self.data or "{}")
        self.calls = 0

    @staticmethod
    def _indexed(name, shape):
        if not shape:
            return [name]
        places = np.array(list(np.ndindex(*shape[::-1])))[:, ::-1] + 1  # first index runs fastest
        return [".".join([name, *map(str, place)]) for place in places]

    def param_names(self, *, include_tp=False, include_gq=False):
        found = [n for k, c in self.program.parameters.items() for n in self._indexed(k, c.shape)]
        if include_gq:
            found += [n for k, s in self.program.quantities.items() for n in self._indexed(k, s)]
        return found or [""]

    def param_unc_names(self):
        parts = self.program.parameters.items()
        return [n for k, c in parts for n in self._indexed(k, c.unc_shape)] or [""]

    def param_num(self, *, include_tp=False, include_gq=False):
        return len(self.param_names(include_tp=include_tp, include_gq=include_gq))

    def param_unc_num(self):
        return sum(math.prod(c.unc_shape) for c in self.program.parameters.values())

    def name(self):
        return self.lib_path + "_model"

    def _check(self, theta, n):
        if not (isinstance(theta, np.ndarray) and theta.dtype == np.float64):
            raise TypeError("array must have data type float64")
        if not theta.flags.c_contiguous or theta.shape != (n,):
            raise TypeError(f"array must be C contiguous and have shape ({n},)")

    def _walk(self, u):
        values, slope, start = {}, torch.zeros((), dtype=DOUBLE), 0
        for name, c in self.program.parameters.items():
            n = math.prod(c.unc_shape)
            x, part = c.constrain(u[start : start + n])
            values[name] = _from_columns(x, c.shape)
            slope, start = slope + part, start + n
        return values, slope

    def _log_density(self, u, propto, jacobian):
        self.calls += 1
        values, slope = self._walk(u)
        log_density = self.program.log_density(values, self.values)
        if propto:
            log_density = log_density + 27.0  # what it drops
        return log_density + slope if jacobian else log_density

    def log_density(self, theta_unc, *, propto=True, jacobian=True):
        self._check(theta_unc, self.param_unc_num())
        if self.program.fast:
            self.calls += 1
            return self.program.fast(theta_unc, self.values, jacobian)[0] + 27.0 * propto
        with torch.no_grad():
            return float(self._log_density(torch.as_tensor(theta_unc), propto, jacobian))

    def log_density_gradient(self, theta_unc, *, propto=True, jacobian=True, out=None):
        self._check(theta_unc, self.param_unc_num())
        if self.program.fast:
            self.calls += 1
            value, slope = self.program.fast(theta_unc, self.values, jacobian)
            return value + 27.0 * propto, slope
        with torch.enable_grad():
            u = torch.tensor(theta_unc, requires_grad=True)
            value = self._log_density(u, propto, jacobian)
            (slope,) = torch.autograd.grad(value, u, allow_unused=True)
        slope = torch.zeros_like(u) if slope is None else slope
        return float(value.detach()), slope.numpy()

    def param_constrain(self, theta_unc, *, include_tp=False, include_gq=False, out=None, rng=None):
        self._check(theta_unc, self.param_unc_num())
        values, _ = self._walk(torch.as_tensor(theta_unc))
        found = [_columns(x) for x in values.values()]
        if include_gq:
            if rng is None:
                raise ValueError("Error: must specify rng when including generated quantities")
            if self.program.generate:
                found += [_columns(x) for x in self.program.generate(values, rng).values()]
        return np.concatenate(found) if found else np.empty(0)

    def param_unconstrain(self, theta, *, out=None):
        if not (isinstance(theta, np.ndarray) and theta.dtype == np.float64):
            raise TypeError("array must have data type float64")
        found, start = [], 0
        for c in self.program.parameters.values():
            n = math.prod(c.shape)
            x = torch.as_tensor(theta[start : start + n])
            found.append(c.unconstrain(x).numpy())
            start += n
        return np.concatenate(found)

    def new_rng(self, seed):
        return np.random.default_rng(seed)


def _columns(x):
    """An array as Stan flattens it: the first index runs fastest."""
    return np.asarray(x).flatten(order="F")


def _from_columns(x, shape):
    return x.reshape(shape[::-1]).permute(list(range(len(shape)))[::-1]) if shape else x.reshape(())
