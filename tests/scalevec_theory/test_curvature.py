"""Curvature: exact Hessians against autograd's, and networks' matrix-free figures against their dense Hessian."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from scalevec_theory import curvature
from scalevec_theory.losses import LeastSquares
from scalevec_theory.parametrizations import DUAL_SCALE


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_hessian_against_autograd() -> None:
    H, T = normal(2, 3, 3), normal(2, 2, 3)
    loss = LeastSquares(H @ H.mT, T)
    blocks = {"u": normal(2, 2), "v": normal(2, 3), "W": normal(2, 2, 3)}
    ours = curvature.hessian(DUAL_SCALE, loss, blocks)
    for k in range(2):

        def one(flat: Tensor, k: int = k) -> Tensor:
            u, v, W = flat.split([2, 3, 6])
            return loss.select(torch.tensor([k])).value(DUAL_SCALE.forward(u=u[None], v=v[None], W=W.reshape(1, 2, 3)))[
                0
            ]

        flat = torch.cat([blocks[name][k].reshape(-1) for name in ("u", "v", "W")])
        torch.testing.assert_close(ours[k], torch.autograd.functional.hessian(one, flat))


def network() -> tuple[dict[str, Tensor], object]:
    x, y = normal(20, 4), normal(20, 2)
    parameters = {"a": 0.5 * normal(6, 4), "b": 0.5 * normal(2, 6)}

    def loss(p: dict[str, Tensor]) -> Tensor:
        return ((torch.tanh(x @ p["a"].mT) @ p["b"].mT - y) ** 2).mean()

    return parameters, loss


def dense(parameters: dict[str, Tensor], loss: object) -> Tensor:
    def flat(z: Tensor) -> Tensor:
        a, b = z.split([24, 12])
        return loss({"a": a.reshape(6, 4), "b": b.reshape(2, 6)})  # type: ignore[operator, no-any-return]

    return torch.autograd.functional.hessian(flat, torch.cat([x.reshape(-1) for x in parameters.values()]))


def test_network_figures_are_those_of_its_dense_hessian() -> None:
    parameters, loss = network()
    H = dense(parameters, loss)
    found = curvature.network_curvature(loss, parameters, np.random.default_rng(0), probes=2000)  # type: ignore[arg-type]
    eigenvalues = torch.linalg.eigvalsh(H)
    assert found.top == pytest.approx(eigenvalues[eigenvalues.abs().argmax()].item(), rel=1e-7)
    assert abs(found.trace - H.trace().item()) < 4 * found.trace_stderr
    assert abs(found.frobenius - H.norm().item()) < 4 * found.frobenius_stderr
    assert found.trace_stderr < 0.05 * abs(found.trace)
    assert 0 < found.frobenius_stderr < 0.05 * found.frobenius


def test_two_parameters_need_no_lanczos() -> None:
    found = curvature.network_curvature(
        lambda p: (p["a"][0] * p["a"][1]) ** 2, {"a": normal(2)}, np.random.default_rng(0)
    )
    a, b = normal(2).tolist()
    expected = np.linalg.eigvalsh([[2 * b * b, 4 * a * b], [4 * a * b, 2 * a * a]])
    assert found.top == pytest.approx(expected[np.abs(expected).argmax()])


def test_a_linear_loss_has_no_curvature() -> None:
    found = curvature.network_curvature(lambda p: p["a"].sum(), {"a": normal(3)}, np.random.default_rng(0))
    assert (found.top, found.trace, found.frobenius) == (0, 0, 0)


def test_bad_input_is_named() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="parameters is empty"):
        curvature.network_curvature(lambda p: torch.tensor(1.0), {}, rng)
    with pytest.raises(ValueError, match="probes=1"):
        curvature.network_curvature(lambda p: p["a"].sum(), {"a": normal(3)}, rng, probes=1)
    with pytest.raises(ValueError, match="the loss is nan"):
        curvature.network_curvature(lambda p: p["a"].sum() * float("nan"), {"a": normal(3)}, rng)
