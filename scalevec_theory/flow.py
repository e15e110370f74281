"""Gradient flow of batches of independent problems, each with its own adaptive step.

φ̇ = −∂L(F(φ))/∂φ − λφ for every parameter block φ of a parametrisation F, integrated by an embedded Runge–Kutta pair
with error control and dense output per problem: a stiff problem neither slows nor spoils the others.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from scalevec_theory import flow_kernels, polynomial_kernels
from scalevec_theory import runge_kutta as rk
from scalevec_theory.counts import check_count
from scalevec_theory.losses import LeastSquares, Loss
from scalevec_theory.parametrizations import DUAL_SCALE, INPUT_SCALE, OUTPUT_SCALE, PLAIN, Parametrization
from scalevec_theory.polynomial_kernels import polynomials_of
from scalevec_theory.runge_kutta import NON_FINITE as NON_FINITE
from scalevec_theory.runge_kutta import OK as OK
from scalevec_theory.runge_kutta import STEP_LIMIT as STEP_LIMIT

COMPILED = (PLAIN, INPUT_SCALE, OUTPUT_SCALE, DUAL_SCALE)
"""Parametrisations whose gradient flow of least squares is compiled: used for float64 on the CPU."""

Blocks = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Trajectory:
    """B problems at S saved times.  A problem whose status is not OK holds NaN from its point of failure on.

    Attributes
    ----------
    parametrization, objective : what was followed: F, and the B losses of θ.
    times : ``(S,)``, or ``(B, S)`` when each problem has its own.
    blocks : the parameter blocks, each ``(B, S, *block)``.
    status : ``(B,)`` integers: OK, STEP_LIMIT (``max_steps`` did not reach the last time) or NON_FINITE (NaN, infinity,
        or a step too short to take, as where the solution blows up).
    steps : ``(B,)`` steps taken, rejected ones included.
    """

    parametrization: Parametrization
    objective: Loss
    times: Tensor
    blocks: Blocks
    status: Tensor
    steps: Tensor

    @cached_property
    def theta(self) -> Tensor:
        """The effective matrix ``(B, S, c, d)``."""
        return self.parametrization.forward(**self.blocks)

    @cached_property
    def loss(self) -> Tensor:
        """L(θ), ``(B, S)``."""
        return self.objective.value(self.theta)

    @cached_property
    def invariants(self) -> dict[str, Tensor]:
        """The parametrisation's conserved quantities by name, each ``(B, S, ...)``."""
        return self.parametrization.invariants(**self.blocks)

    @property
    def converged(self) -> Tensor:
        """``(B,)`` booleans: the problem was integrated to its last time."""
        return self.status == OK

    def drift(self) -> dict[str, Tensor]:
        """Largest change of each conserved quantity since the first saved time, ``(B,)``; NaN where not converged."""
        return {
            name: (q - q[:, :1]).abs().reshape(*q.shape[:2], -1).amax((1, 2)) for name, q in self.invariants.items()
        }


def nearest_names(name: str, names: list[str]) -> str:
    """``names``, those most like ``name`` first if any is, as the tail of an error message."""
    near = difflib.get_close_matches(name, names, n=3)
    return f"did you mean {' or '.join(near)}?" if near else f"expected one of {', '.join(names)}"


def check_device(device: torch.device | str) -> torch.device:
    """The device, if it is there.

    Raises
    ------
    ValueError : no such device, or not on this machine.
    """
    try:
        torch.empty(0, device=device)
        return torch.device(device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(f"device={str(device)!r}: expected a device this machine has, such as 'cpu'") from error


def check_start(
    parametrization: Parametrization,
    loss: Loss,
    start: Mapping[str, Tensor],
    weight_decay: Mapping[str, float] | None,
    device: torch.device | str | None,
) -> tuple[Loss, Blocks, dict[str, float]]:
    """Loss, starting blocks and complete weight decays on the device, after checking that they fit together.

    Raises
    ------
    ValueError : a block is missing, unknown, misshapen or not floating point, dtypes or batch sizes differ, the loss
        does not fit θ, a weight decay is negative, not finite or names no block, or the device is not there.
    """
    names = list(parametrization.axes)
    for name in start:
        if name not in names:
            raise ValueError(f"start has a block {name!r} {parametrization.name} lacks: {nearest_names(name, names)}")
    dims: dict[str, int] = {}
    dtype = None
    for name, axes in parametrization.axes.items():
        if name not in start:
            raise ValueError(f"start lacks block {name!r}: {parametrization.name} needs {', '.join(names)}")
        block = start[name]
        if not block.dtype.is_floating_point or (dtype or block.dtype) != block.dtype:
            raise ValueError(
                f"start[{name!r}] has dtype {block.dtype}: expected one floating-point dtype for all blocks"
            )
        dtype = block.dtype
        letters = ["B", *axes]
        found = dict(zip(letters, block.shape, strict=False)) | dims
        if tuple(block.shape) != tuple(found.get(a) for a in letters):
            expected = ", ".join(str(dims.get(a, a)) for a in letters)
            raise ValueError(f"start[{name!r}] has shape {tuple(block.shape)}: expected ({expected})")
        dims = found
    decay = dict.fromkeys(names, 0.0)
    for name, rate in (weight_decay or {}).items():
        if name not in names:
            raise ValueError(
                f"weight_decay names {name!r}, no block of {parametrization.name}: {nearest_names(name, names)}"
            )
        if not (rate >= 0 and math.isfinite(rate)):
            raise ValueError(f"weight_decay[{name!r}]={rate}: expected a finite number >= 0")
        decay[name] = float(rate)
    target = check_device(start[names[0]].device if device is None else device)
    blocks = {name: start[name].detach().to(target) for name in names}
    loss = loss.to(target)
    theta = parametrization.forward(**blocks)
    if isinstance(loss, LeastSquares) and loss.T.shape != theta.shape:
        raise ValueError(
            f"loss has target T of shape {tuple(loss.T.shape)}: forward of {parametrization.name} gives theta of shape "
            f"{tuple(theta.shape)}, from blocks with a batch axis before their own"
        )
    try:
        value, gradient = loss.value(theta), loss.gradient(theta)
    except (RuntimeError, IndexError) as error:
        raise ValueError(f"loss does not apply to theta of shape {tuple(theta.shape)}: {error}") from error
    if value.shape != theta.shape[:1] or gradient.shape != theta.shape or gradient.dtype != theta.dtype:
        raise ValueError(
            f"loss maps theta {tuple(theta.shape)} {theta.dtype} to a value {tuple(value.shape)} and a gradient"
            f" {tuple(gradient.shape)} {gradient.dtype}: expected ({theta.shape[0]},) and that of theta"
        )
    return loss, blocks, decay


def pull_back(parametrization: Parametrization, blocks: Blocks, cotangent: Callable[[Tensor], Tensor]) -> Blocks:
    """Jᵀ y for every block, J = ∂F/∂φ and y = ``cotangent(θ)`` of the shape of θ, by reverse-mode differentiation."""
    with torch.enable_grad():
        leaves = {name: block.detach().requires_grad_() for name, block in blocks.items()}
        theta = parametrization.forward(**leaves)
    gradients = torch.autograd.grad(theta, list(leaves.values()), cotangent(theta.detach()), materialize_grads=True)
    return dict(zip(leaves, gradients, strict=True))


def parameter_gradient(parametrization: Parametrization, loss: Loss, blocks: Blocks) -> Blocks:
    """∂L(F(φ))/∂φ for every block, by reverse-mode differentiation of F; shapes ``(B, *block)``."""
    return pull_back(parametrization, blocks, loss.gradient)


def gradient_flow(
    parametrization: Parametrization,
    loss: Loss,
    start: Mapping[str, Tensor],
    times: Tensor | Sequence[float],
    *,
    rtol: float = 1e-9,
    atol: float = 1e-9,
    max_steps: int = 100_000,
    weight_decay: Mapping[str, float] | None = None,
    device: torch.device | str | None = None,
) -> Trajectory:
    """Gradient flow φ̇ = −∂L(F(φ))/∂φ − λφ from ``start`` at time 0, at the given times.

    Parameters
    ----------
    parametrization : built-in, or a user's own: of it only ``axes``, ``forward`` and ``invariants`` are used.
    loss : B losses of θ.
    start : the blocks at time 0, each ``(B, *block)``.
    times : increasing times >= 0, ``(S,)`` common to all problems or ``(B, S)``, in units in which φ̇ = −∂L/∂φ.
    rtol, atol : bound on the root mean square over a problem's parameters of error / (atol + rtol |φ|), each step.
    max_steps : steps a problem may take, rejected ones included, before it is given up.
    weight_decay : λ by block name; 0 for blocks not named.
    device : where to compute, and where the result lies; by default where ``start`` lies.

    Raises
    ------
    ValueError : an argument is out of range or does not fit the others.
    """
    loss, blocks, decay = check_start(parametrization, loss, start, weight_decay, device)
    first = next(iter(blocks.values()))
    B = first.shape[0]
    times = torch.as_tensor(times, dtype=first.dtype, device=first.device)
    if times.shape[:-1] not in ((), (B,)) or times.ndim == 0 or times.shape[-1] == 0:
        raise ValueError(f"times has shape {tuple(times.shape)}: expected (S,) or ({B}, S) with S >= 1")
    if not (times.isfinite().all() and (times[..., 0] >= 0).all() and (times.diff(dim=-1) > 0).all()):
        raise ValueError(
            f"times={times.tolist() if times.numel() < 9 else '...'}: expected finite, >= 0 and increasing"
        )
    for name, value in (("rtol", rtol), ("atol", atol)):
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name}={value}: expected a finite number > 0")
    check_count("max_steps", max_steps)

    each = times.expand(B, -1)
    if isinstance(loss, LeastSquares) and first.dtype == torch.float64 and first.is_cpu:
        compiled = _compiled(parametrization, loss, blocks, each, decay, rtol, atol, max_steps)
        if compiled is not None:
            return Trajectory(parametrization, loss, times, *compiled)

    def field(y: Tensor, loss: Loss) -> Tensor:
        phi = _unflatten(y, blocks)
        gradient = parameter_gradient(parametrization, loss, phi)
        return _flatten({name: -g - decay[name] * phi[name] for name, g in gradient.items()})

    y, status, steps = _integrate(field, loss, _flatten(blocks), each, rtol, atol, max_steps)
    return Trajectory(parametrization, loss, times, _unflatten(y, blocks), status, steps)


def _compiled(
    parametrization: Parametrization,
    loss: LeastSquares,
    blocks: Blocks,
    times: Tensor,
    decay: dict[str, float],
    rtol: float,
    atol: float,
    max_steps: int,
) -> tuple[Blocks, Tensor, Tensor] | None:
    """Blocks at the saved times, status and steps from a compiled integrator, if there is one for it."""
    H, T, arrays = loss.H.numpy(), loss.T.numpy(), {name: block.numpy() for name, block in blocks.items()}
    control = (times.numpy(), rtol, atol, max_steps)
    if parametrization in COMPILED:
        saved, status, steps = flow_kernels.integrate(H, T, arrays, decay, *control, torch.get_num_threads())
        found = {name: torch.from_numpy(saved[name]) for name in blocks}
        return found, torch.from_numpy(status), torch.from_numpy(steps)
    dims = {
        a: n for name, axes in parametrization.axes.items() for a, n in zip(axes, arrays[name].shape[1:], strict=True)
    }
    polynomials = polynomials_of(parametrization, dims)
    if polynomials is None:
        return None
    rates = np.repeat(list(decay.values()), [math.prod(x.shape[1:]) for x in arrays.values()])
    y, status, steps = polynomial_kernels.integrate(polynomials, H, T, _flatten(blocks).numpy(), rates, *control)
    return _unflatten(torch.from_numpy(y), blocks), torch.from_numpy(status), torch.from_numpy(steps)


def _flatten(blocks: Blocks) -> Tensor:
    return torch.cat([block.unsqueeze(-1).flatten(1) for block in blocks.values()], 1)


def _unflatten(y: Tensor, like: Blocks) -> Blocks:
    """Blocks ``(..., *block)`` of flat parameters ``(..., n)``."""
    parts = y.split(
        [block[0:1].numel() if block.shape[0] else math.prod(block.shape[1:]) for block in like.values()], -1
    )
    return {
        name: part.reshape(*y.shape[:-1], *block.shape[1:])
        for (name, block), part in zip(like.items(), parts, strict=True)
    }


def _norm(x: Tensor) -> Tensor:
    return x.square().mean(-1).sqrt()


def _integrate(
    field: Callable[[Tensor, Loss], Tensor],
    loss: Loss,
    start: Tensor,
    times: Tensor,
    rtol: float,
    atol: float,
    max_steps: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Parameters ``(B, S, n)``, status and steps ``(B,)`` of ẏ = field(y, loss) from ``start`` ``(B, n)``."""
    B, n = start.shape
    S = times.shape[1]
    saved = start.new_full((B, S, n), math.nan)
    status = torch.full((B,), OK, device=start.device)
    steps = torch.zeros_like(status)
    stages, errors, dense = (torch.as_tensor(x).to(start) for x in (rk.A, rk.E, rk.D))

    # From here on everything concerns the problems still running: `rows` says which they are.
    rows = torch.arange(B, device=start.device)
    y, t, end, until = start, start.new_zeros(B), times[:, -1], times
    log_before, saves = torch.zeros_like(t), (until[:, 0] == 0).long()
    saved[:, 0] = torch.where((saves == 1)[:, None], y, math.nan)
    f = field(y, loss)
    h = _first_step(y, f, rtol, atol)
    status[h.isnan()] = NON_FINITE
    live = (saves < S) & ~h.isnan()

    while live.any():
        if live.sum() < 0.75 * len(rows):
            keep = live.nonzero()[:, 0]
            loss = loss.select(keep)
            rows, y, f, t, h, end, until, saves, log_before, live = (
                x[keep] for x in (rows, y, f, t, h, end, until, saves, log_before, live)
            )
        final = t + h >= end * (1 - rk.SHORTEST)
        h = torch.where(final, end - t, h)
        K = [f]
        for stage in range(1, rk.STAGES):
            z = y + h[:, None] * torch.einsum("s,sbn->bn", stages[stage, :stage], torch.stack(K))
            K.append(field(z, loss))
        slopes = torch.stack(K)
        error = h[:, None] * torch.einsum("s,sbn->bn", errors, slopes)
        squared_error = (error / (atol + rtol * torch.maximum(y.abs(), z.abs()))).square().mean(1)
        accept = live & (squared_error <= 1)
        steps[rows] += live.long()

        reached = torch.where(final, end, t + h)
        while True:
            when = until.gather(1, saves.clamp_max(S - 1)[:, None])[:, 0]
            save = accept & (saves < S) & (when <= reached)
            if not save.any():
                break
            x = (when - t) / h
            weights = dense @ torch.stack([x ** (p + 1) for p in range(dense.shape[1])])
            value = y + h[:, None] * torch.einsum("sb,sbn->bn", weights, slopes)
            saved[rows[save], saves[save]] = value[save]
            saves = saves + save

        log_error = 0.5 * squared_error.clamp_min(rk.SMALLEST_ERROR**2).log()
        onward = rk.SAFETY * torch.exp(rk.PROPORTIONAL * log_error + rk.INTEGRAL * log_before)
        again = (rk.SAFETY * squared_error ** (rk.RETRY / 2)).nan_to_num(0.0).clamp_min(rk.SHRINK)
        h = torch.where(live, h * torch.where(accept, onward, again), h)
        t = torch.where(accept, reached, t)
        y = torch.where(accept[:, None], z, y)
        f = torch.where(accept[:, None], K[-1], f)
        log_before = torch.where(accept, log_error, log_before)
        live &= saves < S
        stuck = live & ~((h > rk.SHORTEST * t) & (h >= 1e-100))
        exhausted = live & ~stuck & (steps[rows] >= max_steps)
        status[rows[stuck]] = NON_FINITE
        status[rows[exhausted]] = STEP_LIMIT
        live &= ~(stuck | exhausted)
    return saved, status, steps


def _first_step(y: Tensor, f: Tensor, rtol: float, atol: float) -> Tensor:
    """First steps ``(B,)`` for error control to correct; NaN where the state or its derivative is not finite."""
    scale = atol + rtol * y.abs()
    size, slope = _norm(y / scale), _norm(f / scale)
    h = (0.01 / slope.clamp_min(1e-15)) ** 0.2
    h = torch.where((size > 1) & (slope > 1e-15), torch.minimum(h, 0.01 * size / slope), h)
    return torch.where(size.isfinite() & slope.isfinite(), h, math.nan)
