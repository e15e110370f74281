"""Stochastic gradient flow in parameter space, an Itô equation, followed by ensembles of paths.

With θ = F(φ), J = ∂F/∂φ and a weight decay λ for every parameter block,

    dφ = −(Jᵀ ∇L(θ) + λφ) dt + noise,

where the noise is one of `Isotropic`, `Minibatch`, `LabelNoise` and `Custom`.  σ² is a variance per unit of time: for
gradient descent of step η on batches of b samples it is η/b times that of one sample's gradient.

Sources: arXiv 2605.26895 (noise and weight decay on scale vectors); Li, Tai and E (2017) for the equation; Kloeden and
Platen (1992) and Rößler (2010) for the schemes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from scalevec_theory import noise_kernels
from scalevec_theory.ensemble import Ensemble, Observables, Recorder, spread
from scalevec_theory.flow import Blocks, nearest_names, parameter_gradient, pull_back
from scalevec_theory.generator import STREAM_LANES, check_seed
from scalevec_theory.losses import LeastSquares, Loss
from scalevec_theory.parametrizations import INPUT_SCALE, PLAIN, Parametrization

COMPILED = (PLAIN, INPUT_SCALE)
"""Parametrisations whose Euler steps for least squares are compiled: used on the CPU, unless the noise is `Custom`."""

SCHEMES = ("euler", "sra1")


def _check_sigma(sigma: float) -> None:
    if not (sigma >= 0 and math.isfinite(sigma)):
        raise ValueError(f"sigma={sigma}: expected a finite number >= 0")


@dataclass(frozen=True)
class Isotropic:
    """σ dB, independent on every parameter (Langevin)."""

    additive: ClassVar[bool] = True
    sigma: float

    def __post_init__(self) -> None:
        _check_sigma(self.sigma)


@dataclass(frozen=True, eq=False)
class Minibatch:
    """−Jᵀ σ S^{1/2} dΞ: noise on the effective gradient, one Brownian motion Ξ ``(c, d)`` shared by all blocks.

    ``covariance`` is S, across the outputs, ``(c, c)`` or ``(B, c, c)``; the identity if None.
    """

    additive: ClassVar[bool] = False
    sigma: float
    covariance: Tensor | None = None

    def __post_init__(self) -> None:
        _check_sigma(self.sigma)


@dataclass(frozen=True)
class LabelNoise:
    """−Jᵀ σ dΞ H^{1/2}: the effective gradient has covariance σ² I ⊗ H, as noise of variance σ² on the labels gives.

    For `LeastSquares` only, whose H it is.
    """

    additive: ClassVar[bool] = False
    sigma: float

    def __post_init__(self) -> None:
        _check_sigma(self.sigma)


@dataclass(frozen=True, eq=False)
class Custom:
    """A(φ) dB with a factor A of the user's own, so that A Aᵀ is the covariance in parameter space.

    ``factor`` takes keyword blocks ``(B, paths, *block)`` and returns A by block name, ``(B, paths, *block, r)``, with
    one number r of Brownian motions, shared by all blocks; a block that is left out has no noise.
    """

    additive: ClassVar[bool] = False
    factor: Callable[..., Mapping[str, Tensor]]


Noise = Isotropic | Minibatch | LabelNoise | Custom


def covariance_factor(covariance: Tensor, name: str) -> Tensor:
    """Lower triangular L ``(B, n, n)``, diagonal >= 0, with L Lᵀ = ``covariance`` ``(B, n, n)``, which may be singular.

    Raises
    ------
    ValueError : a matrix is not finite, symmetric and positive semidefinite; ``name`` says which argument it was.
    """
    if lost := int((~covariance.isfinite()).sum()):
        raise ValueError(f"{name} has {lost} numbers that are not finite: expected a covariance matrix")
    eigenvalues, axes = torch.linalg.eigh(covariance)
    accuracy = 100 * torch.finfo(covariance.dtype).eps * covariance.abs().amax((-2, -1)).clamp_min(1e-300)
    asymmetry = (covariance - covariance.mT).abs().amax((-2, -1))
    if not ((asymmetry <= accuracy) & (eigenvalues[..., 0] >= -accuracy)).all():
        smallest = eigenvalues[..., 0].min().item()
        raise ValueError(
            f"{name} has asymmetry {asymmetry.max().item():.1e} and smallest eigenvalue {smallest:.1e}: "
            f"expected a symmetric positive semidefinite matrix"
        )
    root = eigenvalues.clamp_min(0).sqrt()[..., None] * axes.mT
    L = torch.linalg.qr(root).R.mT
    return L * torch.where(L.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0)[..., None, :].to(L)


def _factors(noise: Noise, loss: Loss, theta: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Lower triangular factors ``(B, c, c)`` and ``(B, d, d)`` of the covariance of the effective gradient's noise."""
    if isinstance(noise, LabelNoise):
        if not isinstance(loss, LeastSquares):
            raise ValueError(
                f"noise=LabelNoise with loss={type(loss).__name__}: expected LeastSquares, whose H it uses"
            )
        return None, covariance_factor(loss.H, "H")
    if isinstance(noise, Minibatch) and noise.covariance is not None:
        B, c = theta.shape[0], theta.shape[-2]
        S = noise.covariance.to(theta)
        if S.shape not in ((c, c), (B, c, c)):
            raise ValueError(f"noise.covariance has shape {tuple(S.shape)}: expected ({c}, {c}) or ({B}, {c}, {c})")
        return covariance_factor(S.expand(B, c, c), "noise.covariance"), None
    return None, None


def largest_curvature(
    parametrization: Parametrization,
    loss: Loss,
    blocks: Blocks,
    weight_decay: Mapping[str, float],
    iterations: int = 30,
) -> Tensor:
    """Largest eigenvalue ``(B,)`` of the Hessian of L(F(φ)) + ½ λ‖φ‖², from below, by the power method.

    Products are central differences of the gradient.  A first round finds the largest magnitude, by which the spectrum
    is then shifted.
    """
    first = next(iter(blocks.values()))
    B, tiny = len(first), torch.finfo(first.dtype).tiny
    generator = torch.Generator().manual_seed(0)
    x = {n: torch.randn(block.shape, generator=generator, dtype=block.dtype).to(block) for n, block in blocks.items()}

    def dot(a: Blocks, b: Blocks) -> Tensor:
        return sum(((a[n] * b[n]).reshape(B, -1).sum(1) for n in a), first.new_zeros(B))

    def along(number: Tensor, block: Tensor) -> Tensor:
        return number.reshape(B, *[1] * (block.ndim - 1)) * block

    width = torch.finfo(first.dtype).eps ** (1 / 3) * (1 + dot(blocks, blocks).sqrt())
    shift = first.new_zeros(B)
    value = shift
    for _ in range(2):
        for _ in range(iterations):
            size = dot(x, x).sqrt().clamp_min(tiny)
            x = {n: along(1 / size, y) for n, y in x.items()}
            up, down = (
                parameter_gradient(parametrization, loss, {n: blocks[n] + along(s * width, x[n]) for n in x})
                for s in (1, -1)
            )
            product = {n: along(0.5 / width, up[n] - down[n]) + weight_decay[n] * x[n] for n in x}
            value = dot(x, product)
            x = {n: product[n] + along(shift, x[n]) for n in x}
        shift = dot(x, x).sqrt()
    return value


def ensemble(
    parametrization: Parametrization,
    loss: Loss,
    start: Mapping[str, Tensor],
    noise: Noise,
    times: Tensor | Sequence[float],
    *,
    dt: float,
    paths: int,
    seed: int,
    observe: Observables,
    quantiles: Sequence[float] = (),
    weight_decay: Mapping[str, float] | None = None,
    scheme: Literal["euler", "sra1"] = "euler",
    device: torch.device | str | None = None,
) -> Ensemble:
    """Moments and quantiles of observables over ``paths`` independent solutions from ``start``, at the given times.

    The time between two saved times is cut into the fewest equal steps not longer than ``dt``.  Paths are not stored.
    The same seed gives the same numbers for any number of threads.

    Parameters
    ----------
    parametrization : built-in, or a user's own: of it only ``axes`` and ``forward`` are used.
    loss : B losses of θ, in the floating-point type of ``start``, which is the type of the computation.
    start : the blocks at time 0, each ``(B, *block)``, or ``(B, paths, *block)``: one for each path.
    times : increasing times >= 0, ``(S,)``.
    seed : from 0 to 2⁶⁴ − 1; a run that goes on from another one's ``final`` needs a seed of its own.
    observe, quantiles : what is kept: functions of keyword blocks, and levels between 0 and 1.
    weight_decay : λ by block name; 0 for blocks not named.
    scheme : "euler", Euler–Maruyama: strong order 1/2 in general and 1 for additive noise, weak order 1; or "sra1",
        Rößler's SRA1: strong order 3/2, for additive noise.
    device : where to compute; by default where ``start`` lies.

    Raises
    ------
    ValueError : an argument is out of range or does not fit the others; among others, ``dt`` is too long to be stable
        at the start (of the first path), 2 over the largest curvature there.  (A run that meets larger curvature on its
        way loses paths to infinity, which the result counts.)
    """
    key = int(check_seed(seed))
    if not isinstance(noise, Noise):
        raise ValueError(f"noise={noise!r}: expected Isotropic, Minibatch, LabelNoise or Custom")
    if scheme not in SCHEMES:
        raise ValueError(f"scheme={scheme!r}: {nearest_names(scheme, list(SCHEMES))}")
    if scheme == "sra1" and not noise.additive:
        raise ValueError(f"scheme='sra1' with noise={type(noise).__name__}: expected additive noise, Isotropic")
    if not (dt > 0 and math.isfinite(dt)):
        raise ValueError(f"dt={dt}: expected a finite number > 0")
    clock = torch.as_tensor(times, dtype=torch.float64).cpu()
    if clock.ndim != 1 or not len(clock) or not (clock.isfinite().all() and clock[0] >= 0 and (clock.diff() > 0).all()):
        raise ValueError(f"times={times}: expected increasing finite times >= 0, of shape (S,)")
    recorder = Recorder(observe, quantiles)
    loss, blocks, decay = spread(parametrization, loss, start, paths, weight_decay, device)
    at_start = {name: x[:, 0] for name, x in blocks.items()}
    theta = parametrization.forward(**at_start)
    factors = _factors(noise, loss, theta)
    curvature = largest_curvature(parametrization, loss, at_start, decay).max().item()
    if dt * curvature >= 2:
        bound = f"{2 / curvature:.3g}, 2 over the largest curvature {curvature:.3g} at the start"
        raise ValueError(f"dt={dt} is too long to be stable: expected less than {bound}")
    walk: _Compiled | _Batched
    compiled = parametrization in COMPILED and isinstance(loss, LeastSquares) and not isinstance(noise, Custom)
    if compiled and scheme == "euler" and theta.device.type == "cpu" and theta.dtype in (torch.float32, torch.float64):
        assert isinstance(loss, LeastSquares)
        walk = _Compiled(loss, blocks, noise, factors, decay, key)
    else:
        walk = _Batched(parametrization, loss, blocks, noise, factors, decay, key, scheme)
    now = 0.0
    for time in clock.tolist():
        steps = math.ceil(
            (time - now) / dt * (1 - 1e-12)
        )  # an interval that is a multiple up to rounding takes no more
        if steps:
            walk.advance((time - now) / steps, steps)
        now = time
        recorder.record(walk.blocks)
    return recorder.result(clock, walk.blocks)


class _Compiled:
    """The paths as the kernel takes them: groups of 64, structure of arrays."""

    def __init__(
        self,
        loss: LeastSquares,
        blocks: Blocks,
        noise: Noise,
        factors: tuple[Tensor | None, Tensor | None],
        decay: Mapping[str, float],
        seed: int,
    ) -> None:
        W = blocks["W"]
        self._B, self._paths, self._c, self._d = W.shape
        self._has_v, self._noise, self._decay = "v" in blocks, noise, decay
        self._H, self._T = loss.H.numpy(), loss.T.numpy()
        self._factors = [W.new_empty(self._B, 0) if f is None else f for f in factors]
        v = blocks.get("v", W.new_ones(self._B, self._paths, self._d))
        flat = torch.cat([v, W.flatten(2)], 2)
        spare = -self._paths % STREAM_LANES  # paths that fill the last group, and are never looked at
        flat = torch.cat([flat, flat[:, :1].expand(-1, spare, -1)], 1)
        groups = flat.reshape(-1, STREAM_LANES, flat.shape[-1]).mT
        self._state = groups.contiguous().numpy()
        self._streams = noise_kernels.new_streams(seed, len(self._state))

    def advance(self, h: float, steps: int) -> None:
        assert not isinstance(self._noise, Custom)
        noise_kernels.advance(
            self._state,
            self._streams,
            self._H,
            self._T,
            *(f.numpy() for f in self._factors),
            has_v=self._has_v,
            isotropic=isinstance(self._noise, Isotropic),
            h=h,
            sigma=self._noise.sigma,
            steps=steps,
            decay=(self._decay.get("v", 0.0), self._decay["W"]),
            threads=torch.get_num_threads(),
        )

    @property
    def blocks(self) -> Blocks:
        flat = torch.from_numpy(self._state).mT.reshape(self._B, -1, self._state.shape[1])[:, : self._paths]
        W = flat[..., self._d :].reshape(self._B, self._paths, self._c, self._d)
        return {"v": flat[..., : self._d], "W": W} if self._has_v else {"W": W}


class _Batched:
    """The paths as one tensor per block, for any parametrisation, loss and device."""

    def __init__(
        self,
        parametrization: Parametrization,
        loss: Loss,
        blocks: Blocks,
        noise: Noise,
        factors: tuple[Tensor | None, Tensor | None],
        decay: Mapping[str, float],
        seed: int,
        scheme: str,
    ) -> None:
        self._parametrization, self._loss, self.blocks, self._noise = parametrization, loss, blocks, noise
        self._rows, self._columns = factors
        self._decay, self._scheme = decay, scheme
        self._generator = torch.Generator(next(iter(blocks.values())).device)
        self._generator.manual_seed(seed if seed < 2**63 else seed - 2**64)

    def _normal(self, like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=self._generator, dtype=like.dtype, device=like.device)

    def advance(self, h: float, steps: int) -> None:
        step = self._euler if self._scheme == "euler" else self._sra1
        for _ in range(steps):
            self.blocks = step(self.blocks, h)

    def _euler(self, blocks: Blocks, h: float) -> Blocks:
        noise = self._noise

        def increment(theta: Tensor) -> Tensor:
            """G h and, where it is the effective gradient that is noisy, its noise."""
            gradient = h * self._loss.gradient(theta)
            if not isinstance(noise, Minibatch | LabelNoise):
                return gradient
            xi = self._normal(theta)
            xi = xi if self._rows is None else self._rows[:, None] @ xi
            xi = xi if self._columns is None else xi @ self._columns[:, None].mT
            return gradient + noise.sigma * math.sqrt(h) * xi

        pull = pull_back(self._parametrization, blocks, increment)
        after = {name: (1 - h * self._decay[name]) * x - pull[name] for name, x in blocks.items()}
        if isinstance(noise, Isotropic):
            return {name: x + noise.sigma * math.sqrt(h) * self._normal(x) for name, x in after.items()}
        if isinstance(noise, Custom):
            factor = noise.factor(**blocks)
            _check_factor(factor, blocks)
            first = next(iter(factor.values()))
            dB = math.sqrt(h) * self._normal(first.new_empty(*first.shape[:2], first.shape[-1]))
            for name, A in factor.items():
                move = A.flatten(2, -2) @ dB[..., None] if A.ndim > 3 else (A * dB).sum(-1)
                after[name] = after[name] + move.reshape(after[name].shape)
        return after

    def _drift(self, blocks: Blocks) -> Blocks:
        gradient = parameter_gradient(self._parametrization, self._loss, blocks)
        return {name: -gradient[name] - self._decay[name] * x for name, x in blocks.items()}

    def _sra1(self, blocks: Blocks, h: float) -> Blocks:
        """With ΔW and ΔZ = ∫(W − W(t)) dt over the step, of variances h and h³/3 and covariance h²/2:

        φ + h f(φ)/3 + 2h f(φ + ¾ h f(φ) + (3/2) σ ΔZ/h)/3 + σ ΔW.
        """
        assert isinstance(self._noise, Isotropic)
        sigma, f = self._noise.sigma * math.sqrt(h), self._drift(blocks)
        dW = {name: sigma * self._normal(x) for name, x in blocks.items()}
        dZ = {name: 0.5 * (dW[name] + sigma / math.sqrt(3) * self._normal(x)) for name, x in blocks.items()}  # over h
        stage = self._drift({name: x + 0.75 * h * f[name] + 1.5 * dZ[name] for name, x in blocks.items()})
        return {name: x + h / 3 * (f[name] + 2 * stage[name]) + dW[name] for name, x in blocks.items()}


def _check_factor(factor: Mapping[str, Tensor], blocks: Blocks) -> None:
    if not isinstance(factor, Mapping):
        raise ValueError(f"noise.factor returned a {type(factor).__name__}: expected a mapping from block names")
    sizes = {A.shape[-1] if A.ndim else 0 for A in factor.values()}
    if len(sizes) != 1:
        raise ValueError(f"noise.factor has last dimensions {sorted(sizes)}: expected one number of Brownian motions")
    for name, A in factor.items():
        if name not in blocks:
            raise ValueError(f"noise.factor names {name!r}: {nearest_names(name, list(blocks))}")
        if A.shape[:-1] != blocks[name].shape:
            raise ValueError(
                f"noise.factor[{name!r}] has shape {tuple(A.shape)}: expected {tuple(blocks[name].shape)} and one more"
            )
