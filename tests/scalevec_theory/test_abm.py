"""Compiled walks against torch.optim on the same gradients, laws of gradients, and independence of the threads."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from scalevec_theory import abm
from scalevec_theory.abm import Gradients
from scalevec_theory.generator import normals
from scalevec_theory.optimizers import SGD, Adam, AdamW, Lion, Muon, Optimizer, RMSProp, SignSGD
from scalevec_theory.schedules import wsd
from scalevec_theory.update_rules import initial_state, update

STEPS, BLOCKS = 70, 3
OPTIMIZERS: list[Optimizer] = [
    AdamW(0.03, 0.2, betas=(0.8, 0.95), eps=1e-3),
    AdamW(0.03, 0.2, betas=(0.0, 0.95)),
    Adam(0.03, 0.2, betas=(0.8, 0.95), eps=1e-3),
    RMSProp(0.03, 0.2, alpha=0.9, eps=1e-3),
    SGD(0.03, 0.2),
    SGD(0.03, 0.2, momentum=0.9),
    SGD(0.03, 0.2, momentum=0.9, nesterov=True),
    SignSGD(0.03, 0.2, momentum=0.5),
    SignSGD(0.03, 0.2),
    Lion(0.03, 0.2),
]
TORCH = {AdamW: torch.optim.AdamW, Adam: torch.optim.Adam, RMSProp: torch.optim.RMSprop, SGD: torch.optim.SGD}
ROUNDING = {torch.float32: 2.0**-24, torch.float64: 2.0**-53}


def _drawn(seed: int, dtype: torch.dtype, rows: int) -> torch.Tensor:
    """What the streams of `BLOCKS` blocks yield: the start, a row that is not used, and then a gradient each step."""
    kind = np.float32 if dtype == torch.float32 else np.float64
    return torch.from_numpy(normals(seed, range(BLOCKS), rows, kind)).transpose(0, 1).reshape(rows, -1)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
@pytest.mark.parametrize("dtype", ROUNDING)
def test_every_step_is_that_of_torch_to_rounding(optimizer: Optimizer, dtype: torch.dtype) -> None:
    """On the same gradients and schedules; what torch lacks is compared with `update`, tested against its formula."""
    g = _drawn(7, dtype, STEPS + 2)
    start, g = 0.5 * g[0], 2.0 * g[2:]
    factors = wsd(STEPS, 10)
    reference = torch.nn.Parameter(start.clone())
    options = {k: v for k, v in vars(optimizer).items() if k not in ("lr", "weight_decay")}
    peer = TORCH[type(optimizer)]([reference], **options) if type(optimizer) in TORCH else None
    state = initial_state(optimizer, start)
    for t in range(1, STEPS + 1):
        lr, decay = optimizer.lr * float(factors[t - 1]), optimizer.weight_decay
        if peer is not None:
            peer.param_groups[0].update(lr=lr, weight_decay=decay)
            reference.grad = g[t - 1]
            peer.step()
        else:
            update(optimizer, state, reference.data, g[t - 1], t, lr, decay)
        if t in (1, 2, 3, 31, 32, 33, STEPS):
            walk = abm.run(
                optimizer,
                64 * BLOCKS,
                t,
                gradients=Gradients(2.0),
                seed=7,
                init=0.5,
                dtype=dtype,
                lr_schedule=factors[:t],
                record=[0, t],
            )
            expected = reference.detach()
            # An update is at most a few lr (SGD: lr |g| / (1 − momentum)), each rounded a handful of times.
            size = max(1.0, float(expected.abs().max()))
            torch.testing.assert_close(walk.weights, expected, rtol=0, atol=20 * t * ROUNDING[dtype] * size)
            squares = torch.stack([start, expected]).double().square().reshape(2, BLOCKS, 64).mean(2)
            np.testing.assert_allclose(walk.squares, squares, rtol=200 * t * ROUNDING[dtype])


def test_recorded_steps_are_those_of_shorter_walks() -> None:
    optimizer, record = AdamW(0.1, 0.1), [0, 1, 2, 31, 32, 33, 64, 65]
    walk = abm.run(optimizer, 128, 65, seed=3, init=1.0, record=record)
    assert walk.steps.tolist() == record
    for k, t in enumerate(record[1:], 1):
        np.testing.assert_array_equal(walk.squares[k], abm.run(optimizer, 128, t, seed=3, init=1.0).squares[0])


def test_same_numbers_for_any_number_of_threads_and_others_for_another_seed() -> None:
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(abm.run(Lion(0.1, 0.1), 64 * 37, 50, seed=2, record=[25, 50]))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        torch.testing.assert_close(other.weights, results[0].weights, rtol=0, atol=0)
        np.testing.assert_array_equal(other.squares, results[0].squares)
    assert not torch.equal(abm.run(Lion(0.1, 0.1), 64 * 37, 50, seed=3).weights, results[0].weights)


LAWS = [Gradients(2.0), Gradients(0.5, correlation=0.8), Gradients(1.5, student_df=9), Gradients(correlation=-0.5)]


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("n", [64 * 1000, 64 * 1000 + 1], ids=["compiled", "torch"])
def test_gradients_have_the_stated_law(law: Gradients, n: int) -> None:
    """SGD with lr 1 from 0 makes w_1 = −g_1 and w_2 = −g_1 − g_2: variance, lag-one correlation and kurtosis of g."""
    walks = [abm.run(SGD(1.0), n, t, gradients=law, seed=11).weights.double() for t in (1, 2, 3)]
    g = [-walks[0], walks[0] - walks[1], walks[1] - walks[2]]
    for x in g:
        assert float(x.std()) == pytest.approx(law.std, rel=0.015)
        assert float(x.mean()) == pytest.approx(0, abs=0.015 * law.std)
    for x, y in pairwise(g):
        assert float((x * y).mean()) / law.std**2 == pytest.approx(law.correlation, abs=0.02)
    kurtosis = float((g[0] ** 4).mean() / (g[0] ** 2).mean() ** 2)
    expected = 3.0 if law.student_df is None else 3 + 6 / (law.student_df - 4)
    assert kurtosis == pytest.approx(expected, rel=0.03 if law.student_df is None else 0.12)


def test_groups_are_tensors_and_their_spread_is_the_standard_error() -> None:
    walk = abm.run(AdamW(0.1, 0.1), 50, 30, shape=(4, 32), seed=1)
    assert walk.weights.shape == (50, 4, 32)
    mean = walk.weights.double().square().flatten(1).mean(1)
    np.testing.assert_allclose(walk.squares[0], mean, rtol=1e-6)
    assert walk.mean_square[0] == pytest.approx(float(mean.mean()), rel=1e-6)
    assert walk.stderr[0] == pytest.approx(float(mean.std() / 50**0.5), rel=1e-5)
    assert np.isnan(abm.run(AdamW(0.1, 0.1), 1, 3, shape=(5,)).stderr).all()


def test_scale_invariant_gradients_are_orthogonal_and_go_as_one_over_the_norm() -> None:
    start, end = (
        abm.run(SGD(1e-3), 3, t, shape=(40,), seed=4, init=2.0, scale_invariant=True, dtype=torch.float64).weights
        for t in (1, 2)
    )
    g = (start - end) / 1e-3
    assert float((g * start).sum(1).abs().max()) < 1e-9
    assert float(g.norm(dim=1).mean()) == pytest.approx(39**0.5 / float(start.norm(dim=1).mean()), rel=0.2)


def test_muon_moves_every_matrix_by_its_own_factor() -> None:
    walk = abm.run(Muon(0.1, ns_steps=0, adjust_lr="none"), 4, 1, shape=(3, 5), dtype=torch.float64)
    identity = torch.eye(3, dtype=torch.float64).expand(4, 3, 3)
    torch.testing.assert_close(walk.weights @ walk.weights.mT, 0.01 * identity)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"n": 0}, "n=0"),
        ({"steps": 0}, "steps=0"),
        ({"init": -1.0}, "init=-1.0"),
        ({"optimizer": Muon(0.1)}, r"shape=\(\)"),
        ({"scale_invariant": True, "shape": (8,)}, "init=0.0"),
        ({"dtype": torch.bfloat16}, "dtype=torch.bfloat16"),
        ({"record": [3, 2]}, r"record=\[3, 2\]"),
        ({"record": [6]}, r"record=\[6\]"),
        ({"record": []}, r"record=\[\]"),
        ({"lr_schedule": np.ones(3)}, "lr_schedule has shape"),
        ({"device": "nowhere"}, "device='nowhere'"),
        ({"seed": -1}, "seed=-1"),
        ({"seed": -1, "n": 63}, "seed=-1"),
        ({"optimizer": torch.optim.SGD([torch.zeros(2)])}, r"optimizer is a torch.*SGD: expected AdamW"),
    ],
)
def test_bad_input_is_named(options: dict, told: str) -> None:
    settings = {"optimizer": AdamW(0.1), "n": 64, "steps": 5, **options}
    with pytest.raises(ValueError, match=told):
        abm.run(settings.pop("optimizer"), settings.pop("n"), settings.pop("steps"), **settings)


@pytest.mark.parametrize(
    ("options", "told"),
    [({"std": 0.0}, "std=0.0"), ({"correlation": 1.0}, "correlation=1.0"), ({"student_df": 2}, "student_df=2")],
)
def test_bad_gradients_are_named(options: dict, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Gradients(**options)
