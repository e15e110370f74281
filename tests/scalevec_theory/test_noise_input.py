"""Stochastic gradient flow at its door: the bound on dt, and what is said of bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from scalevec_theory.flow import Blocks, parameter_gradient
from scalevec_theory.losses import CrossEntropy, LeastSquares
from scalevec_theory.noise import (
    Custom,
    Isotropic,
    LabelNoise,
    Minibatch,
    Noise,
    covariance_factor,
    ensemble,
    largest_curvature,
)
from scalevec_theory.parametrizations import INPUT_SCALE, PLAIN, Parametrization


def least_squares(B: int, c: int, d: int) -> LeastSquares:
    rng = np.random.default_rng(0)
    A = rng.normal(size=(B, d, d))
    H = A @ A.swapaxes(1, 2) / d + 0.2 * np.eye(d)
    return LeastSquares(torch.from_numpy(H), torch.from_numpy(rng.normal(size=(B, c, d))))


def random_start(p: Parametrization, B: int, **dims: int) -> Blocks:
    g = torch.Generator().manual_seed(1)
    return {n: torch.randn(B, *s, generator=g, dtype=torch.float64) for n, s in p.shapes(**dims).items()}


def test_covariance_factor_is_triangular_for_singular_matrices_too() -> None:
    A = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for S in (A @ A.mT, A @ A.mT + 0.1 * torch.eye(4)):
        L = covariance_factor(S, "S")
        torch.testing.assert_close(L @ L.mT, S)
        torch.testing.assert_close(L, L.tril())
        assert (L.diagonal(dim1=1, dim2=2) >= 0).all()
    torch.testing.assert_close(L, torch.linalg.cholesky(S))


def test_largest_curvature_is_that_of_the_hessian() -> None:
    """The first problem starts at a saddle, where eigenvalues of both signs have one magnitude."""
    loss = least_squares(3, 2, 3)
    for model in (PLAIN, INPUT_SCALE):
        start = random_start(model, 3, c=2, d=3)
        for block in start.values():
            block[0] = 0
        decay = {name: 0.003 if name == "v" else 0.002 for name in start}
        found = largest_curvature(model, loss, start, decay, iterations=200)
        for b in range(3):
            one, flat = loss.select(torch.tensor([b])), torch.cat([x[b].reshape(-1) for x in start.values()])

            def gradient(y: Tensor, one: LeastSquares = one, model: Parametrization = model) -> Tensor:
                blocks = {"W": y[-6:].reshape(1, 2, 3)} | ({"v": y[:3][None]} if model is INPUT_SCALE else {})
                parts = parameter_gradient(model, one, blocks)
                return torch.cat([parts[n].reshape(-1) + decay[n] * blocks[n].reshape(-1) for n in start])  # noqa: B023

            hessian = torch.stack(
                [(gradient(flat + 1e-5 * e) - gradient(flat - 1e-5 * e)) / 2e-5 for e in torch.eye(len(flat)).double()]
            )
            expected = torch.linalg.eigvalsh(0.5 * (hessian + hessian.mT))[-1]
            assert abs(found[b] - expected) < 1e-4 * expected


def test_bad_input_is_named() -> None:
    loss = least_squares(1, 2, 3)
    start = INPUT_SCALE.init(torch.zeros_like(loss.T))

    small = Isotropic(0.1)

    def run(noise: Noise = small, loss: object = loss, start: Blocks = start, **changes: object) -> None:
        options: dict[str, object] = {"dt": 0.1, "paths": 4, "seed": 1, "observe": {"v": lambda v, W: v}}
        times = changes.pop("times", [1.0])
        ensemble(INPUT_SCALE, loss, start, noise, times, **(options | changes))  # type: ignore[arg-type]

    curvature = largest_curvature(INPUT_SCALE, loss, start, {"v": 0.0, "W": 0.0}).item()
    run(dt=1.9 / curvature, times=[1e-3])
    with pytest.raises(ValueError, match=rf"dt=.* too long to be stable: expected less than {2 / curvature:.3g}"):
        run(dt=2.1 / curvature)
    for name, value in (("dt", 0.0), ("dt", math.nan), ("paths", 0), ("seed", -1), ("scheme", "milstein")):
        with pytest.raises(ValueError, match=f"{name}="):
            run(**{name: value})
    for times in ([], [1.0, 0.5], [-1.0], [math.inf]):
        with pytest.raises(ValueError, match="times="):
            run(times=times)
    with pytest.raises(ValueError, match=r"noise=0.1: expected Isotropic, Minibatch, LabelNoise or Custom"):
        run(0.1)
    with pytest.raises(ValueError, match="scheme='sra1' with noise=Minibatch: expected additive"):
        run(Minibatch(0.1), scheme="sra1")
    with pytest.raises(ValueError, match="quantiles holds 1"):
        run(quantiles=(1.0,))
    with pytest.raises(ValueError, match=r"observe\['v'\] has shape"):
        run(observe={"v": lambda v, W: v.sum(1)})
    with pytest.raises(ValueError, match="sigma=-1"):
        Isotropic(-1)
    with pytest.raises(ValueError, match=r"noise\.covariance has shape"):
        run(Minibatch(0.1, torch.eye(3, dtype=torch.float64)))
    with pytest.raises(ValueError, match=r"noise\.covariance .* smallest eigenvalue -1"):
        run(Minibatch(0.1, -torch.eye(2, dtype=torch.float64)))
    with pytest.raises(ValueError, match=r"noise\.covariance has 4 numbers that are not finite"):
        run(Minibatch(0.1, torch.full((2, 2), math.nan).double()))
    with pytest.raises(ValueError, match=r"start\['v'\] has 3 numbers that are not finite"):
        run(start=start | {"v": math.inf * start["v"]})
    with pytest.raises(ValueError, match="loss has a gradient at the start that is not finite"):
        run(loss=LeastSquares(math.nan * loss.H, loss.T))
    with pytest.raises(ValueError, match=r"noise\.factor\['v'\] has shape \(\)"):
        run(Custom(lambda v, W: {"v": torch.tensor(1.0)}))
    with pytest.raises(ValueError, match=r"noise\.factor returned a Tensor"):
        run(Custom(lambda v, W: v))  # type: ignore[arg-type, return-value]
    with pytest.raises(ValueError, match="LabelNoise with loss=CrossEntropy"):
        run(LabelNoise(0.1), CrossEntropy(torch.ones(1, 5, 3).double(), torch.ones(1, 5, 2).double()))
    with pytest.raises(ValueError, match=r"noise\.factor\['v'\] has shape"):
        run(Custom(lambda v, W: {"v": v}))
    with pytest.raises(ValueError, match=r"expected paths=4"):
        run(start={n: x[:, None].expand(-1, 3, *x.shape[1:]) for n, x in start.items()})
