"""Ready-made scopes for the commonest kinds of claim about a parametrisation: conserved, dominates, grows like."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from scalevec_theory.claim import Margin, Scope
from scalevec_theory.flow import gradient_flow
from scalevec_theory.losses import LeastSquares
from scalevec_theory.parametrizations import Parametrization
from scalevec_theory.problems import (
    Between,
    Diagonal,
    Field,
    Identity,
    PositiveDefinite,
    Problems,
    ProblemSpace,
    Real,
    Zero,
)

INPUTS: dict[str, Callable[[], Field]] = {
    "whitened": lambda: Identity("dd"),
    "uncorrelated": lambda: Diagonal("dd"),
    "correlated": lambda: PositiveDefinite("dd", high=20.0),
}
"""What is assumed of H = E[x xᵀ] in squared loss, by name."""

SIZES = (1, 2, 3)
HORIZONS = torch.logspace(-1, 1.3, 24, dtype=torch.float64)
"""Saved times of a comparison, in units of 1/λ_max(H)."""

GLOBAL_ERROR = 100.0
"""Bound of the global over the local error tolerance of a flow to t = 20/λ_max; the flow's tests measure the ratio."""


def _dims(*parametrizations: Parametrization) -> dict[str, tuple[int, ...]]:
    letters = "".join("".join(p.axes.values()) + p.theta_rows for p in parametrizations) + "d"
    return {letter: SIZES if letter != "b" else (2,) for letter in sorted(set(letters))}


def _inputs(inputs: str) -> Field:
    if inputs not in INPUTS:
        raise ValueError(f"inputs={inputs!r}: expected one of {', '.join(INPUTS)}")
    return INPUTS[inputs]()


def _squared_loss(problems: Problems) -> LeastSquares:
    T = problems["T"]
    return LeastSquares(problems["H"], T.flatten(1, -2))


def _size(values: Tensor, blocks: Mapping[str, Tensor]) -> Tensor:
    """How large the terms are that make up a quantity: the most of Σ_i |φ_i ∂q/∂φ_i| and |q| along a flow, ``(B,)``.

    Of several components, of their sum with irrational weights, so that none hides another's terms.
    """
    size = values.detach().abs().flatten(1).amax(1)
    if values.grad_fn is None:
        return size
    parts = values[..., None].flatten(2)
    weights = 1 + torch.arange(1, parts.shape[-1] + 1, dtype=values.dtype, device=values.device).sqrt().remainder(1)
    given = list(blocks.values())
    found = torch.autograd.grad((parts * weights).sum(), given, allow_unused=True, materialize_grads=True)
    terms = [(x.detach() * g).abs()[..., None].flatten(2).sum(-1) for x, g in zip(given, found, strict=True)]
    return torch.maximum(size, torch.stack(terms).sum(0).amax(1))


def conserved(
    parametrization: Parametrization,
    quantity: Callable[[Mapping[str, Tensor]], Tensor],
    *,
    holds: bool = True,
    accuracy: float = 1e-8,
    dims: Mapping[str, tuple[int, ...]] | None = None,
) -> Scope:
    """The scope "``quantity`` is constant along gradient flow of ``parametrization``", searched on squared loss.

    What moves by less than ``accuracy`` of the size of its terms counts as constant.

    Parameters
    ----------
    quantity : blocks ``(B, S, *block)`` by name to values ``(B, S, ...)``.
    dims : sizes to draw, by axis letter; 1, 2 and 3 for letters not named.
    """
    fields: dict[str, Field] = {
        "H": PositiveDefinite("dd", high=20.0),
        "T": Real(parametrization.theta_rows + "d"),
        **{block: Real(axes) for block, axes in parametrization.axes.items()},
    }

    def margin(problems: Problems, accuracy: float) -> Margin:
        times = torch.tensor([0.0, 0.3, 1.0, 3.0], dtype=torch.float64, device=problems["H"].device)
        start = {block: problems[block] for block in parametrization.axes}
        tolerance = accuracy / GLOBAL_ERROR
        run = gradient_flow(parametrization, _squared_loss(problems), start, times, rtol=tolerance, atol=tolerance)
        blocks = {name: x.detach().requires_grad_() for name, x in run.blocks.items()}
        with torch.enable_grad():
            values = quantity(blocks)
        times_of = next(iter(blocks.values())).shape[:2]
        if not isinstance(values, Tensor) or values.shape[:2] != times_of:
            shape = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else f"type {type(values).__name__}"
            raise ValueError(
                f"the quantity of {parametrization.name} has {shape}: expected a tensor {(*times_of, '...')}, one "
                "value for each problem and time; the blocks have these two axes first"
            )
        return Margin.equal(values.detach(), values.detach()[:, :1], accuracy, scale=_size(values, blocks))

    space = ProblemSpace(
        "squared loss with correlated inputs, any initial blocks", _dims(parametrization) | dict(dims or {}), fields
    )
    statement = f"The quantity is constant along gradient flow of {parametrization.name}."
    return Scope("conserved", statement, holds, space, margin, accuracy, cost=4)


def dominates(
    faster: Parametrization,
    slower: Parametrization,
    *,
    inputs: str = "correlated",
    zero_start: bool = True,
    holds: bool = True,
    accuracy: float = 1e-8,
    dims: Mapping[str, tuple[int, ...]] | None = None,
) -> Scope:
    """The scope "gradient flow of ``faster`` never has the larger loss", from standard scales and the same W(0).

    The margin is the least of (L_slower − L_faster)/L(0) over times up to 20/λ_max(H) at which the numerical error is
    below 5% of the loss.  Losses that are equal up to that error leave the scope inconclusive: equality is no lead.

    Parameters
    ----------
    inputs : whitened, uncorrelated or correlated.
    zero_start : W(0) = 0; otherwise standard normal.

    Raises
    ------
    ValueError : unknown ``inputs``.
    """
    axes = max((faster.axes["W"], slower.axes["W"]), key=len)
    fields = {
        "H": _inputs(inputs),
        "T": Real(axes),
        "W0": Zero(axes) if zero_start else Real(axes),
    }

    def losses(parametrization: Parametrization, problems: Problems, times: Tensor, accuracy: float) -> Tensor:
        W0 = problems["W0"].flatten(1, -2) if len(parametrization.axes["W"]) == 2 else problems["W0"]
        start = parametrization.init(W0)
        return gradient_flow(parametrization, _squared_loss(problems), start, times, rtol=accuracy, atol=accuracy).loss

    def margin(problems: Problems, accuracy: float) -> Margin:
        first = _squared_loss(problems).value(problems["W0"].flatten(1, -2))[:, None]
        top = torch.linalg.eigvalsh(problems["H"])[:, -1:]
        times = HORIZONS.to(top.device) / top
        L_slow = losses(slower, problems, times, accuracy)
        L_fast = losses(faster, problems, times, accuracy)
        # An error δ of θ moves L by at most √(2 λ_max L) δ + λ_max δ²/2.
        shift = GLOBAL_ERROR * accuracy * (1 + problems["T"].abs().flatten(1).amax(1, keepdim=True))
        error = 2 * torch.sqrt(2 * top * torch.maximum(L_slow, L_fast)) * shift + top * shift**2
        visible = (error < 0.05 * L_slow) | L_slow.isnan()
        return Margin.at_least(
            torch.where(visible, L_slow / first, torch.inf),
            torch.where(visible, L_fast / first, 0.0),
            torch.where(visible, error / first, 0.0).nan_to_num(0.0),
        )

    start = "W(0) = 0" if zero_start else "any W(0)"
    space = ProblemSpace(f"squared loss, {inputs} inputs, {start}", _dims(faster, slower) | dict(dims or {}), fields)
    statement = f"Gradient flow of {faster.name} never has a larger loss than that of {slower.name}."
    return Scope("dominates", statement, holds, space, margin, accuracy, cost=2)


def grows_like(
    function: Callable[[Tensor], Tensor],
    exponent: float,
    *,
    low: float,
    high: float,
    tolerance: float = 0.05,
    holds: bool = True,
) -> Scope:
    """The scope "``function(x)`` grows like x^exponent on [low, high]": every local slope lies within ``tolerance``.

    Parameters
    ----------
    function : positive values ``(B,)`` at points ``(B,)``, exact enough that a slope over a factor 1.1 is.

    Raises
    ------
    ValueError : not 0 < low < high; when the margin is computed, values of another shape or not positive.
    """
    if not 0 < low < high:
        raise ValueError(f"low={low}, high={high}: expected 0 < low < high")

    def margin(problems: Problems, accuracy: float) -> Margin:
        x = problems["x"]
        above, below = function(1.05 * x), function(x / 1.05)
        for value, at in ((above, 1.05 * x), (below, x / 1.05)):
            if not isinstance(value, Tensor) or value.shape != x.shape:
                shape = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
                raise ValueError(
                    f"function of {len(x)} points gave {shape}: expected a tensor of shape {tuple(x.shape)}"
                )
            if bool((value <= 0).any()):
                worst = int(value.argmin())
                raise ValueError(f"function({float(at[worst]):.6g}) = {float(value[worst]):.6g}: expected values > 0")
        slope = torch.log(above / below) / (2 * torch.log(torch.tensor(1.05, dtype=x.dtype)))
        return Margin(tolerance - (slope - exponent).abs(), torch.zeros_like(x))

    space = ProblemSpace(f"x in [{low}, {high}]", {}, {"x": Between("", low, high)})
    return Scope("exponent", f"The function grows like x^{exponent:g} on [{low:g}, {high:g}].", holds, space, margin)
