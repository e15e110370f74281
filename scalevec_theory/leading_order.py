"""The leading term of a quantity that vanishes like C t^p: its constant and exponent, measured at a few small times."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from scalevec_theory.claim import Margin

NODES = 6
"""Times at which the quantity is measured: k/6 of the longest, k = 1, …, 6."""


def measuring_times(unit: Tensor, accuracy: float) -> Tensor:
    """Six times ``(B, 6)``, so short in ``unit`` ``(B,)`` that truncation costs a share of about ``accuracy``."""
    nodes = torch.arange(1, NODES + 1).to(unit) / NODES
    return nodes * accuracy ** (1 / NODES) * unit[:, None]


def extrapolate(values: Tensor) -> Tensor:
    """The value at 0 of the polynomial through ``values`` ``(..., n)`` at 1, …, n."""
    return values @ _weights(values)


def _weights(values: Tensor) -> Tensor:
    n = values.shape[-1]
    return torch.tensor([(-1) ** (k - 1) * math.comb(n, k) for k in range(1, n + 1)]).to(values)


def leading_term_margin(
    quantity: Tensor, noise: Tensor, times: Tensor, constant: Tensor, exponent: float, accuracy: float
) -> Margin:
    """The margin of "``quantity`` = C t^p (1 + O(t))".

    quantity/(C t^p) is extrapolated to t = 0 and compared with 1 to within ``accuracy``.  log₂ of its ratio at t and
    2t is extrapolated from three pairs and compared with 0 to within 0.01, if all six are close enough to 1 to read an
    exponent off.  What the last point of an extrapolation changes bounds its error of truncation.

    Parameters
    ----------
    quantity, times : ``(B, 6)``, at `measuring_times`.
    noise : bound of the error of ``quantity``, ``(B,)``.
    constant : C, ``(B,)``.
    """
    predicted = constant[:, None] * times**exponent
    ratio, of_ratio = quantity / predicted, noise[:, None] / predicted
    slope = torch.log2((ratio[:, [1, 3, 5]] / ratio[:, :3]).abs())
    of_slope = 3 * of_ratio[:, :3] / ratio[:, :3].abs()
    off, error = [], []
    for values, of_values, target in ((ratio, of_ratio, 1.0), (slope, of_slope, 0.0)):
        limit = extrapolate(values)
        off.append((limit - target).abs())
        error.append((limit - extrapolate(values[:, :-1])).abs() + of_values @ _weights(of_values).abs())
    readable = (ratio - 1).abs().amax(1) < 0.5
    off[1] = torch.where(readable, off[1], 0.0)
    tolerance = torch.stack([torch.full_like(constant, accuracy), torch.where(readable, 0.01, torch.inf)], 1)
    return Margin.at_least(tolerance, torch.stack(off, 1), torch.stack(error, 1).nan_to_num(0.0))
