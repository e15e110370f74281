"""Stochastic gradient flow: each step exactly, the law of each noise model, right order and right limit, doors."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from scalevec_theory import noise as engine
from scalevec_theory.descent import descend
from scalevec_theory.flow import Blocks
from scalevec_theory.generator import STREAM_LANES, normals
from scalevec_theory.losses import CrossEntropy, LeastSquares
from scalevec_theory.noise import (
    COMPILED,
    Custom,
    Isotropic,
    LabelNoise,
    Minibatch,
    Noise,
    covariance_factor,
    ensemble,
)
from scalevec_theory.parametrizations import DUAL_SCALE, INPUT_SCALE, PLAIN, Parametrization

Z = 4.5  # standard errors; the seeds are fixed, so a test that passes goes on passing


def batched(parametrization: Parametrization) -> Parametrization:
    """The same parametrisation as a user's own, which no kernel knows: it takes the batched path."""
    own = dataclasses.replace(parametrization, name=f"my-{parametrization.name}")
    assert own not in COMPILED
    return own


BOTH_PATHS = pytest.mark.parametrize("path", [lambda p: p, batched], ids=["compiled", "batched"])


def least_squares(B: int, c: int, d: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> LeastSquares:
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(B, d, d))
    H = A @ A.swapaxes(1, 2) / d + 0.2 * np.eye(d)
    return LeastSquares(torch.from_numpy(H).to(dtype), torch.from_numpy(rng.normal(size=(B, c, d))).to(dtype))


def random_start(p: Parametrization, B: int, seed: int = 1, **dims: int) -> Blocks:
    g = torch.Generator().manual_seed(seed)
    return {n: torch.randn(B, *s, generator=g, dtype=torch.float64) for n, s in p.shapes(**dims).items()}


def covariance(c: int, seed: int = 2) -> Tensor:
    A = torch.randn(c, c, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return A @ A.mT / c


FINAL: dict[str, Callable[..., Tensor]] = {}  # nothing observed: only the final blocks are looked at


# One step after another, exactly.


@pytest.mark.parametrize("model", [PLAIN, INPUT_SCALE])
@pytest.mark.parametrize("c", [1, 4, 6])
@pytest.mark.parametrize("noise", [Isotropic(0.0), Minibatch(0.0)])
def test_without_noise_the_steps_are_gradient_descent(model: Parametrization, c: int, noise: Noise) -> None:
    loss = least_squares(2, c, 3)
    start = random_start(model, 2, c=c, d=3)
    decay = {"v": 0.3, "W": 0.1} if model is INPUT_SCALE else {"W": 0.1}
    expected = descend(model, loss, start, step=0.01, n_steps=50, weight_decay=decay)
    for p in (model, batched(model)):
        run = ensemble(p, loss, start, noise, [0.5], dt=0.01, paths=3, seed=0, observe=FINAL, weight_decay=decay)
        for name, x in run.final.items():
            torch.testing.assert_close(x, expected.blocks[name][:, -1:].expand_as(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["isotropic", "minibatch", "covariance", "label"])
@pytest.mark.parametrize("model", [PLAIN, INPUT_SCALE])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_compiled_steps_are_those_of_the_equation(dtype: torch.dtype, model: Parametrization, kind: str) -> None:
    """Path by path, with the same random numbers put into the equation as it is written; 70 paths are two groups."""
    B, c, d, paths, steps, h, sigma = 2, 5, 3, 70, 4, 0.05, 0.4
    loss, S = least_squares(B, c, d), covariance(c)
    own = LeastSquares(loss.H.to(dtype), loss.T.to(dtype))
    noise: Noise = {
        "isotropic": Isotropic(sigma),
        "minibatch": Minibatch(sigma),
        "covariance": Minibatch(sigma, S),
        "label": LabelNoise(sigma),
    }[kind]
    start = random_start(model, B, c=c, d=d)
    decay = {"v": 0.3, "W": 0.1} if model is INPUT_SCALE else {"W": 0.1}
    narrow = {n: x.to(dtype) for n, x in start.items()}
    run = ensemble(
        *(model, own, narrow, noise, [steps * h]),
        **{"dt": h, "paths": paths, "seed": 5, "observe": FINAL, "weight_decay": decay},
    )
    drawn = c * d + (d if kind == "isotropic" and model is INPUT_SCALE else 0)
    rows = drawn + drawn % 2
    numbers = normals(5, range(4), rows * steps, np.float32 if dtype == torch.float32 else np.float64)
    z = torch.from_numpy(numbers.reshape(B, 2, steps, rows, STREAM_LANES)).double()
    z = z.permute(2, 0, 1, 4, 3).reshape(steps, B, 2 * STREAM_LANES, rows)[:, :, :paths]
    blocks = {n: x[:, None].expand(B, paths, *x.shape[1:]) for n, x in start.items()}
    A = covariance_factor(S[None], "S")[0] if kind == "covariance" else torch.eye(c, dtype=torch.float64)
    L = covariance_factor(loss.H, "H") if kind == "label" else torch.eye(d, dtype=torch.float64).expand(B, d, d)
    for k in range(steps):
        xi = z[k][..., : c * d].reshape(B, paths, c, d)
        W, v = blocks["W"], blocks.get("v", torch.ones(B, paths, d, dtype=torch.float64))
        D = h * loss.gradient(W * v[:, :, None])
        if kind != "isotropic":
            D = D + sigma * math.sqrt(h) * A @ xi @ L[:, None].mT
        after = {"W": W - D * v[:, :, None] - h * decay["W"] * W}
        if "v" in blocks:
            after["v"] = v - (W * D).sum(2) - h * decay["v"] * v
        if kind == "isotropic":
            after["W"] = after["W"] + sigma * math.sqrt(h) * xi
            if "v" in blocks:
                after["v"] = after["v"] + sigma * math.sqrt(h) * z[k][..., c * d : c * d + d]
        blocks = after
    for name, x in run.final.items():
        accuracy = 1000 * torch.finfo(dtype).eps  # four steps of some twenty roundings, of numbers up to ten
        torch.testing.assert_close(x.double(), blocks[name], rtol=accuracy, atol=accuracy)


# The law of each noise model.


@BOTH_PATHS
def test_isotropic_noise_on_a_plain_matrix_is_ornstein_uhlenbeck(path: Callable[..., Parametrization]) -> None:
    """Euler's own mean and variance: with a = 1 − h(H + λ) they go as aⁿ and σ² h (1−a²ⁿ)/(1−a²) in H's axes."""
    sigma, h, decay = 0.5, 0.1, 0.2
    loss = least_squares(2, 2, 3)
    start = random_start(PLAIN, 2, c=2, d=3)
    eigenvalues, axes = torch.linalg.eigh(loss.H)
    times = [0.0, 0.5, 3.0]
    run = ensemble(
        *(path(PLAIN), loss, start, Isotropic(sigma), times),
        **{"dt": h, "paths": 20_000, "seed": 1, "weight_decay": {"W": decay}},
        observe={"W": lambda W: W @ axes[:, None]},
    )
    rate = eigenvalues + decay
    rest = (loss.T @ axes) * (eigenvalues / rate)[:, None]
    for s, time in enumerate(times):
        n = round(time / h)
        a = 1 - h * rate
        mean = rest + (start["W"] @ axes - rest) * (a**n)[:, None]
        variance = (sigma**2 * h * (1 - a ** (2 * n)) / (1 - a**2))[:, None].expand(2, 2, 3)
        assert ((run.mean["W"][:, s] - mean).abs() <= Z * run.stderr["W"][:, s] + 1e-12).all()
        assert ((run.variance["W"][:, s] - variance).abs() <= Z * variance * math.sqrt(2 / 20_000) + 1e-12).all()


@BOTH_PATHS
@pytest.mark.parametrize("anisotropic", [False, True])
def test_minibatch_noise_alone_has_the_moments_of_a_linear_system(
    path: Callable[..., Parametrization], anisotropic: bool
) -> None:
    """H = 0: E v² and s = E wᵀSw obey a' = σ² s, s' = σ² tr(S²) a, which Euler's steps discretise exactly."""
    c, d, sigma, h, n, paths = 3, 2, 0.5, 0.02, 50, 30_000
    S = covariance(c) if anisotropic else torch.eye(c, dtype=torch.float64)
    zero = LeastSquares(torch.zeros(1, d, d, dtype=torch.float64), torch.zeros(1, c, d, dtype=torch.float64))
    run = ensemble(
        *(path(INPUT_SCALE), zero, INPUT_SCALE.init(zero.T), Minibatch(sigma, S if anisotropic else None), [n * h]),
        **{"dt": h, "paths": paths, "seed": 2},
        observe={"v²": lambda v, W: v**2, "wᵀSw": lambda v, W: (W * (S @ W)).sum(2)},
    )
    a, s = 1.0, 0.0
    for _ in range(n):
        a, s = a + h * sigma**2 * s, s + h * sigma**2 * (S @ S).trace().item() * a
    for name, value in (("v²", a), ("wᵀSw", s)):
        assert ((run.mean[name][:, 0] - value).abs() < Z * run.stderr[name][:, 0]).all()


def noise_in_parameters(sigma: float, root: Tensor) -> Custom:
    """σ times minus the transposed Jacobian of θ = W diag(v), written out, times I ⊗ root."""

    def factor(v: Tensor, W: Tensor) -> dict[str, Tensor]:
        c, d = W.shape[2:]
        eye_c, eye_d = torch.eye(c, dtype=W.dtype), torch.eye(d, dtype=W.dtype)
        # ∂θ_kl/∂v_j = W_kj δ_lj,  ∂θ_kl/∂W_ij = v_j δ_ki δ_lj;  θ_kl has the noise Σ_m root_lm dΞ_km
        on_v = torch.einsum("bpkj,jm->bpjkm", W, root).flatten(3)
        on_W = torch.einsum("bpj,ik,jl,lm->bpijkm", v, eye_c, eye_d, root).flatten(4)
        return {"v": -sigma * on_v, "W": -sigma * on_W}

    return Custom(factor)


@pytest.mark.parametrize("kind", ["minibatch", "label"])
@BOTH_PATHS
def test_effective_gradient_noise_is_the_custom_noise_of_its_jacobian(
    path: Callable[..., Parametrization], kind: str
) -> None:
    loss = least_squares(1, 2, 3)
    start = random_start(INPUT_SCALE, 1, c=2, d=3)
    root = covariance_factor(loss.H, "H")[0] if kind == "label" else torch.eye(3, dtype=torch.float64)
    observe = {
        "v²": lambda v, W: v**2,
        "W²": lambda v, W: W**2,
        "vW": lambda v, W: (v[:, :, None] * W).sum(2) ** 2,
        "Q": lambda v, W: v**2 - (W**2).sum(2),
    }
    model: Noise = LabelNoise(0.5) if kind == "label" else Minibatch(0.5)
    runs = [
        ensemble(p, loss, start, noise, [1.0], dt=0.05, paths=20_000, seed=seed, observe=observe)
        for p, noise, seed in ((path(INPUT_SCALE), model, 3), (INPUT_SCALE, noise_in_parameters(0.5, root), 4))
    ]
    for name in observe:
        se = (runs[0].stderr[name] ** 2 + runs[1].stderr[name] ** 2).sqrt()
        assert ((runs[0].mean[name] - runs[1].mean[name]).abs() < Z * se).all(), name


def test_balance_has_no_martingale_part_under_minibatch_noise() -> None:
    """Q_j(t) − Q_j(0) − σ² ∫ (‖w_j‖² − c v_j²) dt vanishes path by path as dt → 0; isotropic noise leaves it random."""
    c, d, sigma = 2, 3, 0.5
    loss = least_squares(1, c, d)
    start = random_start(INPUT_SCALE, 1, c=c, d=d)

    def remainder(noise: Noise, steps: int) -> float:
        walk = engine._Batched(
            *(INPUT_SCALE, loss, {n: x[:, None].expand(1, 500, *x.shape[1:]) for n, x in start.items()}),
            *(noise, (None, None), {"v": 0.0, "W": 0.0}, 7, "euler"),
        )
        h = 1 / steps

        def parts() -> tuple[Tensor, Tensor]:
            v2, w2 = walk.blocks["v"] ** 2, (walk.blocks["W"] ** 2).sum(2)
            return v2 - w2, sigma**2 * (w2 - c * v2)

        Q0, integral = parts()[0], torch.zeros(1, 500, d, dtype=torch.float64)
        for _ in range(steps):
            integral += h * parts()[1]
            walk.advance(h, 1)
        return (parts()[0] - Q0 - integral).square().mean().sqrt().item()

    coarse, fine = remainder(Minibatch(sigma), 50), remainder(Minibatch(sigma), 800)
    assert coarse / fine > 0.8 * math.sqrt(16)  # order 1/2 in the mean square
    assert remainder(Isotropic(sigma), 800) > 20 * fine


@BOTH_PATHS
def test_weak_limit_of_the_scale_model(path: Callable[..., Parametrization]) -> None:
    """Means at dt = 0.1 and 0.05, extrapolated to 0, against dt = 0.005."""
    loss = least_squares(1, 2, 3)
    start = random_start(INPUT_SCALE, 1, c=2, d=3)
    observe = {"v²": lambda v, W: (v**2).sum(2), "loss": lambda v, W: loss.value(W * v[:, :, None])}
    paths = 30_000 if path(INPUT_SCALE) in COMPILED else 6_000
    runs = [
        ensemble(
            *(path(INPUT_SCALE), loss, start, Minibatch(0.4), [1.0]),
            **{"dt": dt, "paths": paths, "seed": seed, "observe": observe},
        )
        for seed, dt in enumerate((0.1, 0.05, 0.005))
    ]
    for name in observe:
        mean, se = ([run.mean[name][0, 0].item() for run in runs], [run.stderr[name][0, 0].item() for run in runs])
        limit, error = 2 * mean[1] - mean[0], math.sqrt(4 * se[1] ** 2 + se[0] ** 2 + se[2] ** 2)
        assert abs(limit - mean[2]) < Z * error + 0.02 * abs(mean[0] - mean[2]), name


# What is returned.


@BOTH_PATHS
def test_moments_and_quantiles_are_those_of_the_final_paths(path: Callable[..., Parametrization]) -> None:
    loss = least_squares(2, 2, 3)
    start = INPUT_SCALE.init(torch.zeros_like(loss.T))
    run = ensemble(
        *(path(INPUT_SCALE), loss, start, Isotropic(0.3), torch.tensor([0.0, 0.25, 1.0])),
        **{"dt": 0.1, "paths": 101, "seed": 1, "quantiles": (0.1, 0.5)},
        observe={"v": lambda v, W: v, "|W|²": lambda v, W: (W**2).sum((2, 3))},
    )
    v, W2 = run.final["v"], (run.final["W"] ** 2).sum((2, 3))
    assert run.mean["v"].shape == (2, 3, 3) and run.quantiles["|W|²"].shape == (2, 2, 3)
    torch.testing.assert_close(run.mean["v"][:, 0], start["v"])
    torch.testing.assert_close(run.mean["v"][:, -1], v.mean(1))
    torch.testing.assert_close(run.variance["|W|²"][:, -1], W2.var(1))
    torch.testing.assert_close(run.stderr["|W|²"][:, -1], W2.std(1) / math.sqrt(101))
    torch.testing.assert_close(
        run.quantiles["|W|²"][:, :, -1], torch.quantile(W2, torch.tensor([0.1, 0.5]).double(), 1)
    )
    assert (run.finite == 101).all()


@BOTH_PATHS
def test_lost_paths_are_counted_and_not_averaged(path: Callable[..., Parametrization]) -> None:
    loss = least_squares(1, 2, 3)
    start = {
        n: x[:, None].repeat(1, 10, *[1] * (x.ndim - 1)) for n, x in random_start(INPUT_SCALE, 1, c=2, d=3).items()
    }
    start["W"][0, 4] = 1e8  # far outside the stable range: explodes
    run = ensemble(
        *(path(INPUT_SCALE), loss, start, Isotropic(0.1), [0.0, 1.0]),
        **{"dt": 0.05, "paths": 10, "seed": 1, "observe": {"v": lambda v, W: v.sum(2)}},
    )
    assert run.non_finite.tolist() == [[0, 1]]
    rest = run.final["v"][:, [0, 1, 2, 3, 5, 6, 7, 8, 9]].sum(2)
    torch.testing.assert_close(run.mean["v"][:, 1], rest.mean(1))
    assert run.mean_of_all("v").isfinite().tolist() == [[True, False]]
    torch.testing.assert_close(run.variance["v"][:, 1], rest.var(1))


@BOTH_PATHS
def test_a_run_goes_on_from_its_final_blocks(path: Callable[..., Parametrization]) -> None:
    loss = least_squares(1, 2, 3)
    start = INPUT_SCALE.init(torch.zeros_like(loss.T))
    first = ensemble(*(path(INPUT_SCALE), loss, start, Minibatch(0.0), [0.5]), dt=0.1, paths=4, seed=1, observe=FINAL)
    second = ensemble(
        *(path(INPUT_SCALE), loss, first.final, Minibatch(0.0), [0.5]), dt=0.1, paths=4, seed=2, observe=FINAL
    )
    whole = ensemble(*(path(INPUT_SCALE), loss, start, Minibatch(0.0), [1.0]), dt=0.1, paths=4, seed=3, observe=FINAL)
    torch.testing.assert_close(second.final["W"], whole.final["W"])
    assert (second.final["W"] - first.final["W"]).abs().max() > 0.01 < first.final["W"].abs().max()


@BOTH_PATHS
def test_same_seed_same_numbers_for_any_number_of_threads(path: Callable[..., Parametrization]) -> None:
    loss = least_squares(2, 4, 3, dtype=torch.float32)
    before, finals = torch.get_num_threads(), []
    try:
        for threads, seed in ((1, 2**64 - 1), (2, 2**64 - 1), (3, 2**64 - 1), (1, 8)):
            torch.set_num_threads(threads)
            finals.append(
                ensemble(
                    *(path(INPUT_SCALE), loss, INPUT_SCALE.init(torch.zeros_like(loss.T)), LabelNoise(0.3), [0.2, 0.5]),
                    **{"dt": 0.05, "paths": 200, "seed": seed, "observe": FINAL},
                ).final["W"]
            )
    finally:
        torch.set_num_threads(before)
    assert torch.equal(finals[0], finals[1]) and torch.equal(finals[0], finals[2])
    assert not torch.equal(finals[0], finals[3])


def test_any_parametrisation_and_loss_takes_the_batched_path() -> None:
    """Cross-entropy through a dual scale: without noise the steps are gradient descent."""
    g = torch.Generator().manual_seed(1)
    X = torch.randn(2, 6, 3, generator=g, dtype=torch.float64)
    Y = torch.softmax(torch.randn(2, 6, 4, generator=g, dtype=torch.float64), -1)
    loss = CrossEntropy(X, Y)
    start = random_start(DUAL_SCALE, 2, c=4, d=3)
    run = ensemble(DUAL_SCALE, loss, start, Minibatch(0.0), [0.4], dt=0.02, paths=2, seed=1, observe=FINAL)
    expected = descend(DUAL_SCALE, loss, start, step=0.02, n_steps=20)
    for name, x in run.final.items():
        torch.testing.assert_close(x[:, 1], expected.blocks[name][:, -1], rtol=1e-10, atol=1e-12)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_gpu_agrees_with_cpu() -> None:
    loss = least_squares(2, 4, 3)
    observe = {"v²": lambda v, W: v**2, "W²": lambda v, W: W**2}
    cpu, gpu = (
        ensemble(
            *(INPUT_SCALE, loss, INPUT_SCALE.init(torch.zeros_like(loss.T)), LabelNoise(0.5), [1.0]),
            **{"dt": 0.05, "paths": 20_000, "seed": seed, "observe": observe, "device": device},
        )
        for seed, device in enumerate(("cpu", "cuda"))
    )
    assert gpu.final["W"].is_cuda
    for name in observe:
        se = (cpu.stderr[name] ** 2 + gpu.stderr[name].cpu() ** 2).sqrt()
        assert ((cpu.mean[name] - gpu.mean[name].cpu()).abs() < Z * se).all(), name
