"""Gradient flow: right order, right limits, one problem never touching another, failures reported, two paths as one."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

from scalevec_theory import runge_kutta as rk
from scalevec_theory.flow import COMPILED, NON_FINITE, OK, STEP_LIMIT, Trajectory, gradient_flow, parameter_gradient
from scalevec_theory.losses import CrossEntropy, LeastSquares
from scalevec_theory.parametrizations import (
    BUILT_IN,
    DUAL_SCALE,
    INPUT_SCALE,
    OUTPUT_SCALE,
    PLAIN,
    SCALAR_MULTIPLIER,
    Parametrization,
)
from scalevec_theory.radial import radius


def batched(parametrization: Parametrization) -> Parametrization:
    """The same parametrisation as a user's own, which no kernel knows: it takes the batched torch path."""
    own = dataclasses.replace(parametrization, name=f"my-{parametrization.name}")
    assert own not in COMPILED
    return own


BOTH_PATHS = pytest.mark.parametrize("path", [lambda p: p, batched], ids=["compiled", "batched"])


def least_squares(B: int, c: int, d: int, seed: int = 0, condition: float = 1e2) -> LeastSquares:
    generator = np.random.default_rng(seed)
    Q, _ = np.linalg.qr(generator.normal(size=(B, d, d)))
    H = np.einsum("bij,j,bkj->bik", Q, np.geomspace(1, 1 / condition, d), Q)
    return LeastSquares(torch.from_numpy(H), torch.from_numpy(generator.normal(size=(B, c, d))))


def random_start(parametrization: Parametrization, B: int, seed: int = 1, **dims: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(B, *shape, generator=generator, dtype=torch.float64)
        for name, shape in parametrization.shapes(**dims).items()
    }


def times(end: float, count: int) -> Tensor:
    return torch.linspace(0, end, count, dtype=torch.float64)


def accuracy(run: Trajectory, rtol: float, atol: float) -> float:
    """Bound on the error of a flow that does not expand distances: every step may add its whole tolerance."""
    largest = max(block.abs().max().item() for block in run.blocks.values())
    parameters = sum(block[0, 0].numel() for block in run.blocks.values())
    return run.steps.max().item() * math.sqrt(parameters) * (atol + rtol * largest)


def exact_plain(loss: LeastSquares, W0: Tensor, at: Tensor) -> Tensor:
    """θ(t) = T + (θ(0) − T) e^{−Ht}, ``(B, S, c, d)``."""
    decay = torch.matrix_exp(-loss.H[:, None] * at[:, None, None])
    return loss.T[:, None] + (W0 - loss.T)[:, None] @ decay


def test_tableau_satisfies_the_order_conditions() -> None:
    """Conditions of order 5 for the step and of order 4 for the embedded and the dense output (Butcher's trees)."""
    A, c = np.pad(rk.A, ((0, 0), (0, 1))), rk.C
    b, embedded = A[-1], A[-1] - rk.E
    Ac, Ac2 = A @ c, A @ c**2
    trees4 = [
        (c**0, 1, 1),
        (c, 2, 2),
        (c**2, 3, 3),
        (Ac, 6, 3),
        (c**3, 4, 4),
        (c * Ac, 8, 4),
        (Ac2, 12, 4),
        (A @ Ac, 24, 4),
    ]
    trees5 = [c**4, c**2 * Ac, c * Ac2, Ac**2, A @ c**3, c * (A @ Ac), A @ (c * Ac), A @ Ac2, A @ A @ Ac]
    for tree, density in zip(trees5, [5, 10, 15, 20, 20, 30, 40, 60, 120], strict=True):
        assert abs(b @ tree - 1 / density) < 1e-14
    assert np.abs(A.sum(1) - c).max() < 1e-14
    for tree, density, order in trees4:
        assert abs(b @ tree - 1 / density) < 1e-14
        assert abs(embedded @ tree - 1 / density) < 1e-14
        for x in (0.1, 0.5, 0.9, 1.0):
            assert abs(sum(rk.D[:, p] * x ** (p + 1) for p in range(4)) @ tree - x**order / density) < 1e-12
    assert abs(embedded @ c**4 - 1 / 5) > 1e-4


@BOTH_PATHS
def test_order(path) -> None:  # type: ignore[no-untyped-def]
    """Steps grow as tolerance^(-1/5) and the error with the tolerance^1; an order one lower or higher would show as
    exponents -1/4 or -1/6, and 4/5.  A concave loss: exponential growth asks for the same relative step throughout."""
    mild = least_squares(6, 2, 3, condition=2)
    loss = LeastSquares(-mild.H, torch.zeros_like(mild.T))
    start = random_start(PLAIN, 6, c=2, d=3)
    at = times(3, 2)
    exact = exact_plain(loss, start["W"], at)
    tolerances = np.geomspace(1e-9, 1e-12, 4)
    runs = [gradient_flow(path(PLAIN), loss, start, at, rtol=float(t), atol=1e-3 * float(t)) for t in tolerances]
    errors = [((run.theta - exact).abs() / exact.abs()).max().item() for run in runs]
    steps = [run.steps.double().mean().item() for run in runs]
    assert -0.22 < np.polyfit(np.log(tolerances), np.log(steps), 1)[0] < -0.185, steps
    assert 0.9 < np.polyfit(np.log(tolerances), np.log(errors), 1)[0] < 1.1, errors


@BOTH_PATHS
@pytest.mark.parametrize("tolerance", [1e-6, 1e-10])
def test_plain_model_follows_the_matrix_exponential(path, tolerance) -> None:  # type: ignore[no-untyped-def]
    loss = least_squares(20, 3, 5)
    start = random_start(PLAIN, 20, c=3, d=5)
    at = times(15, 40)
    run = gradient_flow(path(PLAIN), loss, start, at, rtol=tolerance, atol=tolerance)
    assert run.converged.all()
    assert (run.theta - exact_plain(loss, start["W"], at)).abs().max() < accuracy(run, tolerance, tolerance)


@BOTH_PATHS
def test_weight_decay_shrinks_the_free_model_exponentially(path) -> None:  # type: ignore[no-untyped-def]
    loss = LeastSquares(torch.zeros(3, 2, 2, dtype=torch.float64), torch.ones(3, 4, 2, dtype=torch.float64))
    start = random_start(DUAL_SCALE, 3, c=4, d=2)
    at = times(5, 7)
    decay = {"u": 0.3, "v": 0.7, "W": 0.1}
    run = gradient_flow(path(DUAL_SCALE), loss, start, at, weight_decay=decay)
    for name, rate in decay.items():
        shape = [1, -1] + [1] * (start[name].ndim - 1)
        exact = start[name][:, None] * torch.exp(-rate * at).reshape(shape)
        assert (run.blocks[name] - exact).abs().max() < accuracy(run, 1e-9, 1e-9)


@BOTH_PATHS
def test_radius_follows_its_closed_form(path) -> None:  # type: ignore[no-untyped-def]
    generator = torch.Generator().manual_seed(3)
    h = torch.rand(30, 4, generator=generator, dtype=torch.float64) + 0.05
    T = torch.randn(30, 3, 4, generator=generator, dtype=torch.float64)
    at = times(10, 21)
    loss = LeastSquares(torch.diag_embed(h), T)
    run = gradient_flow(path(INPUT_SCALE), loss, INPUT_SCALE.init(torch.zeros_like(T)), at)
    R = T.norm(dim=1)
    exact = radius(at[:, None], h[:, None], R[:, None])[:, :, None] * (T / R[:, None])[:, None]
    assert (run.theta - exact).abs().max() < accuracy(run, 1e-9, 1e-9)


@pytest.mark.parametrize("parametrization", COMPILED, ids=lambda p: p.name)
@pytest.mark.parametrize("c, d", [(1, 1), (3, 2), (4, 8), (5, 9)])
def test_compiled_right_hand_side_is_the_autograd_gradient(parametrization, c, d) -> None:  # type: ignore[no-untyped-def]
    """φ̇(0) by a difference quotient of fifth order: its error is rounding and integration error over h, below 1e-9."""
    B, h = 3, 2e-3
    loss = least_squares(B, c, d)
    start = {name: block / 2 for name, block in random_start(parametrization, B, c=c, d=d).items()}
    decay = {name: 0.1 + 0.2 * k for k, name in enumerate(start)}
    run = gradient_flow(parametrization, loss, start, times(5 * h, 6), rtol=1e-13, atol=1e-13, weight_decay=decay)
    gradient = parameter_gradient(parametrization, loss, start)
    weights = torch.tensor([-137 / 60, 5, -5, 10 / 3, -5 / 4, 1 / 5], dtype=torch.float64) / h
    for name in start:
        velocity = torch.einsum("s,bs...->b...", weights, run.blocks[name])
        expected = -gradient[name] - decay[name] * start[name]
        assert (velocity - expected).abs().max() < 1e-8 * (1 + expected.abs().max())


@pytest.mark.parametrize("parametrization", COMPILED, ids=lambda p: p.name)
@pytest.mark.parametrize("c, d", [(1, 2), (4, 8), (6, 11)])
def test_both_paths_agree(parametrization, c, d) -> None:  # type: ignore[no-untyped-def]
    """The same method with the same steps: only rounding differs, and it decides no more than the last digits of h."""
    B = 7
    loss, start = least_squares(B, c, d), random_start(parametrization, B, c=c, d=d)
    at = torch.rand(B, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64).cumsum(1)
    runs = [
        gradient_flow(p, loss, start, at, rtol=1e-8, atol=1e-9, weight_decay={"W": 0.05})
        for p in (parametrization, batched(parametrization))
    ]
    assert torch.equal(runs[0].steps, runs[1].steps)
    for name in start:
        assert runs[0].blocks[name].shape == (B, 9, *start[name].shape[1:])
        assert (runs[0].blocks[name] - runs[1].blocks[name]).abs().max() < 1e-11
    assert (runs[0].loss - runs[1].loss).abs().max() < 1e-10


@BOTH_PATHS
def test_stiff_problems_neither_slow_nor_spoil_the_others(path) -> None:  # type: ignore[no-untyped-def]
    """Stiffness 300 between mild problems; alone or in the batch every problem takes the same steps."""
    mild = least_squares(6, 2, 3)
    speed = torch.tensor([1, 300, 1, 100, 1, 1], dtype=torch.float64)[:, None, None]
    loss = LeastSquares(mild.H * speed, mild.T)
    start = random_start(INPUT_SCALE, 6, c=2, d=3)
    at = times(2, 5)
    run = gradient_flow(path(INPUT_SCALE), loss, start, at, rtol=1e-7, atol=1e-7)
    assert run.converged.all()
    assert run.steps[speed[:, 0, 0] == 1].max() < 60 < 300 < run.steps[1]
    for b in (0, 1):
        alone = gradient_flow(
            path(INPUT_SCALE),
            loss.select(torch.tensor([b])),
            {k: v[b : b + 1] for k, v in start.items()},
            at,
            rtol=1e-7,
            atol=1e-7,
        )
        assert alone.steps[0] == run.steps[b]
        assert (alone.theta[0] - run.theta[b]).abs().max() <= (0 if path(PLAIN) in COMPILED else 1e-12)


@BOTH_PATHS
def test_nan_is_reported_per_problem(path) -> None:  # type: ignore[no-untyped-def]
    loss = least_squares(4, 2, 3)
    loss.T[1, 0, 0] = math.nan
    start = INPUT_SCALE.init(torch.zeros(4, 2, 3, dtype=torch.float64))
    start["W"][2, 1, 1] = math.inf
    run = gradient_flow(path(INPUT_SCALE), loss, start, times(1, 4))
    assert run.status.tolist() == [OK, NON_FINITE, NON_FINITE, OK]
    assert run.converged.tolist() == [True, False, False, True]
    assert run.theta[[0, 3]].isfinite().all() and run.loss[[0, 3]].isfinite().all()
    assert run.theta[[1, 2], 1:].isnan().all() and run.loss[[1, 2], 1:].isnan().all()
    assert all(drift.isnan().tolist() == [False, True, True, False] for drift in run.drift().values())


@BOTH_PATHS
def test_blow_up_in_finite_time_is_reported_where_it_happens(path) -> None:  # type: ignore[no-untyped-def]
    """L = −½θ², θ = vw, v = w at first: θ̇ = 2θ², so θ = θ₀/(1 − 2θ₀t) ends at t = 1/(2θ₀)."""
    H = torch.tensor([[[-1.0]], [[1.0]]], dtype=torch.float64)
    loss = LeastSquares(H, torch.zeros(2, 1, 1, dtype=torch.float64))
    half = torch.full((2, 1), 0.5**0.5, dtype=torch.float64)
    at = torch.tensor([0, 0.5, 0.9, 1.1, 2], dtype=torch.float64)
    run = gradient_flow(path(INPUT_SCALE), loss, {"v": half, "W": half[:, None]}, at)
    assert run.status.tolist() == [NON_FINITE, OK]
    assert torch.allclose(run.theta[0, :3, 0, 0], 0.5 / (1 - at[:3]), rtol=1e-6, atol=0)
    assert run.theta[0, 3:].isnan().all()
    assert torch.allclose(run.theta[1, :, 0, 0], 0.5 / (1 + at), rtol=1e-7, atol=0)


@BOTH_PATHS
def test_step_limit_is_reported_where_it_strikes(path) -> None:  # type: ignore[no-untyped-def]
    mild = least_squares(3, 2, 2)
    loss = LeastSquares(mild.H * torch.tensor([1, 1e3, 1], dtype=torch.float64)[:, None, None], mild.T)
    start = PLAIN.init(torch.zeros(3, 2, 2, dtype=torch.float64))
    run = gradient_flow(path(PLAIN), loss, start, times(5, 50), max_steps=100)
    assert run.status.tolist() == [OK, STEP_LIMIT, OK]
    assert run.steps[1] == 100
    reached = run.loss[1].isfinite()
    assert 1 <= reached.sum() < 50 and not reached[reached.sum() :].any()
    assert run.theta[[0, 2]].isfinite().all()


@BOTH_PATHS
@pytest.mark.parametrize("parametrization", [INPUT_SCALE, OUTPUT_SCALE, DUAL_SCALE], ids=lambda p: p.name)
def test_invariants_drift_by_no_more_than_integration_error(path, parametrization) -> None:  # type: ignore[no-untyped-def]
    loss = least_squares(8, 3, 4)
    start = random_start(parametrization, 8, c=3, d=4)
    for tolerance in (1e-6, 1e-8):
        run = gradient_flow(path(parametrization), loss, start, times(3, 4), rtol=tolerance, atol=tolerance)
        largest = max(block.abs().max().item() for block in run.blocks.values())
        assert set(run.drift()) == set(parametrization.invariants(**start))
        for drift in run.drift().values():
            assert drift.shape == (8,)
            assert 0 < drift.max() < 2 * largest * accuracy(run, tolerance, tolerance)


def test_every_built_in_parametrisation_conserves_its_invariants_and_descends() -> None:
    for parametrization in BUILT_IN.values():
        c = 4 if parametrization.theta_rows == "c" else 2
        loss = least_squares(3, 4, 3)
        start = random_start(parametrization, 3, c=c, d=3, b=2)
        run = gradient_flow(parametrization, loss, start, times(1, 3), rtol=1e-7, atol=1e-7)
        assert run.converged.all() and (run.loss.diff(dim=1) < 0).all(), parametrization.name
        for name, drift in run.drift().items():
            assert drift.max() < 1e-5 * (1 + run.invariants[name].abs().max()), (parametrization.name, name)


@BOTH_PATHS
def test_equal_weight_decay_shrinks_the_invariants_exponentially(path) -> None:  # type: ignore[no-untyped-def]
    loss, start, at = least_squares(4, 3, 4), random_start(INPUT_SCALE, 4, c=3, d=4), times(4, 9)
    run = gradient_flow(path(INPUT_SCALE), loss, start, at, weight_decay={"v": 0.2, "W": 0.2})
    for Q in run.invariants.values():
        assert (Q - Q[:, :1] * torch.exp(-0.4 * at)[:, None]).abs().max() < 1e-6


def test_result_is_the_same_for_any_number_of_threads() -> None:
    loss = least_squares(300, 4, 8)
    start = INPUT_SCALE.init(torch.zeros(300, 4, 8, dtype=torch.float64))
    before = torch.get_num_threads()
    runs = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            runs.append(gradient_flow(INPUT_SCALE, loss, start, times(5, 7)))
    finally:
        torch.set_num_threads(before)
    for run in runs[1:]:
        assert torch.equal(run.theta, runs[0].theta) and torch.equal(run.steps, runs[0].steps)


@BOTH_PATHS
def test_saved_times_do_not_change_the_steps(path) -> None:  # type: ignore[no-untyped-def]
    loss, start = least_squares(5, 2, 3), random_start(INPUT_SCALE, 5, c=2, d=3)
    many = gradient_flow(path(INPUT_SCALE), loss, start, times(2, 41))
    few = gradient_flow(path(INPUT_SCALE), loss, start, times(2, 41)[10::10])
    assert torch.equal(many.steps, few.steps)
    assert torch.equal(many.theta[:, 10::10], few.theta)
    own = times(2, 41)[10::10].expand(5, -1)
    assert torch.equal(gradient_flow(path(INPUT_SCALE), loss, start, own).theta, few.theta)


@BOTH_PATHS
def test_only_time_zero(path) -> None:  # type: ignore[no-untyped-def]
    start = random_start(OUTPUT_SCALE, 2, c=2, d=3)
    run = gradient_flow(path(OUTPUT_SCALE), least_squares(2, 2, 3), start, times(0, 1))
    assert run.converged.all() and (run.steps == 0).all()
    assert all(torch.equal(run.blocks[name][:, 0], start[name]) for name in start)


def test_a_users_parametrisation_follows_its_closed_form() -> None:
    """θ = w² for c = d = 1: θ̇ = −4hθ(θ − T), a logistic curve."""
    square = Parametrization("square", {"w": "cd"}, lambda w: w * w, lambda w: {})
    h, target, w0 = (
        torch.tensor(x, dtype=torch.float64).reshape(-1, 1, 1) for x in ([1.0, 0.2], [2.0, 0.5], [0.3, 1.5])
    )
    at = times(2, 9)
    run = gradient_flow(square, LeastSquares(h, target), {"w": w0}, at)
    exact = target / (1 + (target / w0**2 - 1) * torch.exp(-4 * h * target * at))
    assert (run.theta[..., 0] - exact.squeeze(1)[..., None]).abs().max() < accuracy(run, 1e-9, 1e-9) * 3


def test_cross_entropy_agrees_with_an_independent_integrator() -> None:
    generator = np.random.default_rng(5)
    X, Y = generator.normal(size=(2, 6, 3)), generator.dirichlet(np.ones(4), size=(2, 6))
    at = times(3, 5)
    start = random_start(SCALAR_MULTIPLIER, 2, c=4, d=3)
    loss = CrossEntropy(torch.from_numpy(X), torch.from_numpy(Y))
    run = gradient_flow(SCALAR_MULTIPLIER, loss, start, at)
    for b in range(2):

        def field(t: float, y: np.ndarray, b: int = b) -> np.ndarray:
            s, W = y[0], y[1:].reshape(4, 3)
            logits = X[b] @ (s * W).T
            p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
            G = (p - Y[b]).T @ X[b] / 6
            return -np.concatenate([[(W * G).sum()], (s * G).ravel()])

        y0 = np.concatenate([[start["s"][b].item()], start["W"][b].numpy().ravel()])
        y = solve_ivp(field, (0, 3), y0, "DOP853", at.numpy(), rtol=1e-12, atol=1e-12).y.T
        assert np.abs(run.theta[b].numpy() - y[:, :1, None] * y[:, 1:].reshape(-1, 4, 3)).max() < 1e-7


def test_times_may_be_plain_numbers() -> None:
    loss, start = least_squares(2, 2, 3), random_start(INPUT_SCALE, 2, c=2, d=3)
    run = gradient_flow(INPUT_SCALE, loss, start, [0.1, 0.7])
    assert torch.equal(run.times, torch.tensor([0.1, 0.7], dtype=torch.float64))


def test_single_precision_takes_the_batched_path() -> None:
    loss = least_squares(3, 2, 3)
    single = LeastSquares(loss.H.float(), loss.T.float())
    start = INPUT_SCALE.init(torch.zeros(3, 2, 3, dtype=torch.float64))
    run = gradient_flow(
        INPUT_SCALE, single, {k: v.float() for k, v in start.items()}, times(4, 5), rtol=1e-5, atol=1e-5
    )
    assert run.theta.dtype == torch.float32 and run.converged.all()
    assert (run.theta - gradient_flow(INPUT_SCALE, loss, start, times(4, 5)).theta).abs().max() < 1e-3


def test_no_problems() -> None:
    start = INPUT_SCALE.init(torch.zeros(0, 2, 3, dtype=torch.float64))
    loss = LeastSquares(torch.zeros(0, 3, 3, dtype=torch.float64), torch.zeros(0, 2, 3, dtype=torch.float64))
    for parametrization in (INPUT_SCALE, batched(INPUT_SCALE)):
        run = gradient_flow(parametrization, loss, start, times(1, 2))
        assert run.theta.shape == (0, 2, 2, 3) and run.loss.shape == (0, 2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_gpu_agrees_with_cpu() -> None:
    loss = least_squares(50, 4, 8)
    start = INPUT_SCALE.init(torch.zeros(50, 4, 8, dtype=torch.float64))
    cpu = gradient_flow(INPUT_SCALE, loss, start, times(5, 9))
    gpu = gradient_flow(INPUT_SCALE, loss, start, times(5, 9), device="cuda")
    assert gpu.theta.is_cuda and (gpu.theta.cpu() - cpu.theta).abs().max() < 1e-10


def test_bad_input_is_named() -> None:
    loss = least_squares(2, 3, 4)
    start = INPUT_SCALE.init(torch.zeros(2, 3, 4, dtype=torch.float64))
    at = times(1, 3)
    v, W = start["v"], start["W"]
    cases: list[tuple[dict, str]] = [
        ({"start": {"v": v}}, r"lacks block 'W'"),
        ({"start": {"v": v, "W": W, "vv": v}}, r"'vv'.*did you mean v"),
        ({"start": {"v": v[:, :3], "W": W}}, r"start\['W'\] has shape \(2, 3, 4\): expected \(2, c, 3\)"),
        ({"start": {"v": v[:1], "W": W}}, r"start\['W'\] has shape"),
        ({"start": {"v": v[0, 0], "W": W}}, r"start\['v'\] has shape \(\): expected \(B, d\)"),
        ({"start": {"v": v, "W": W.float()}}, r"start\['W'\] has dtype torch.float32"),
        ({"start": {"v": v.long(), "W": W}}, r"start\['v'\] has dtype torch.int64"),
        (
            {"loss": least_squares(2, 1, 4)},
            r"T of shape \(2, 1, 4\): forward of input-scale gives theta of shape \(2, 3,",
        ),
        ({"loss": least_squares(3, 3, 4)}, r"T of shape \(3, 3, 4\)"),
        ({"times": at.flip(0)}, r"times=\[1.0, 0.5, 0.0\]: expected finite, >= 0 and increasing"),
        ({"times": at - 1}, r"times=.*>= 0"),
        ({"times": torch.tensor([0, math.nan])}, r"times=.*finite"),
        ({"times": torch.zeros(0)}, r"times has shape \(0,\)"),
        ({"times": at.expand(3, -1)}, r"times has shape \(3, 3\): expected \(S,\) or \(2, S\)"),
        ({"rtol": 0.0}, r"rtol=0.0: expected a finite number > 0"),
        ({"atol": -1e-9}, r"atol=-1e-09"),
        ({"max_steps": 0}, r"max_steps=0: expected an integer >= 1"),
        ({"weight_decay": {"w": 0.1}}, r"weight_decay names 'w', no block of input-scale"),
        ({"weight_decay": {"W": -0.1}}, r"weight_decay\['W'\]=-0.1: expected a finite number >= 0"),
        ({"device": "cudo"}, r"device='cudo'"),
        ({"device": "cuda:99"}, r"device='cuda:99'"),
    ]
    for change, message in cases:
        arguments = {"loss": loss, "start": start, "times": at} | change
        with pytest.raises(ValueError, match=message):
            gradient_flow(INPUT_SCALE, **arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"forward": lambda u, W: W}, "mine: forward does not take the blocks v, W by name: .*'u'"),
        ({"invariants": lambda v: {}}, "mine: invariants does not take the blocks v, W by name: .*'W'"),
    ],
)
def test_functions_of_other_blocks_are_refused(change, message):
    functions = {"forward": lambda v, W: W * v[..., None, :], "invariants": lambda v, W: {}}
    with pytest.raises(ValueError, match=message):
        Parametrization("mine", {"v": "d", "W": "cd"}, **{**functions, **change})
