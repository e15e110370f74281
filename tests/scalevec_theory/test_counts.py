"""What counts something is an integer, wherever it is given."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch

from scalevec_theory import abm, schedules
from scalevec_theory.counts import check_count
from scalevec_theory.curvature import network_curvature
from scalevec_theory.descent import descend
from scalevec_theory.equilibrium import norm_of_gaussians, predict
from scalevec_theory.flow import gradient_flow
from scalevec_theory.losses import LeastSquares
from scalevec_theory.noise import Isotropic, ensemble
from scalevec_theory.optimizers import SGD
from scalevec_theory.parametrizations import PLAIN
from scalevec_theory.stochastic_descent import stochastic_descent

LOSS = LeastSquares(torch.eye(2, dtype=torch.float64)[None], torch.zeros(1, 1, 2, dtype=torch.float64))
START = {"W": torch.ones(1, 1, 2, dtype=torch.float64)}
FLOW = (PLAIN, LOSS, START)
DESCENT = {"step": 0.1, "label_noise": 0.1, "optimizer": "sgd", "paths": 2, "seed": 0, "observe": {}}


@pytest.mark.parametrize("value", [1.5, 2.0, "3", None, True, np.bool_(True), 0, np.nan])
def test_what_is_no_count_is_named(value: object) -> None:
    with pytest.raises(ValueError, match=r"size=.*: expected an integer >= 1"):
        check_count("size", value)
    assert check_count("size", np.int32(3)) == 3 and check_count("size", 0, 0) == 0


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (partial(ensemble, *FLOW, Isotropic(0.1), [1.0], dt=0.1, seed=0, observe={}, paths=1.5), "paths"),
        (partial(stochastic_descent, *FLOW, [1], **DESCENT, batch=1.5), "batch"),
        (partial(descend, *FLOW, step=0.1, n_steps=1.5), "n_steps"),
        (partial(descend, *FLOW, step=0.1, n_steps=2, save_every=1.5), "save_every"),
        (partial(gradient_flow, *FLOW, [1.0], max_steps=1.5), "max_steps"),
        (partial(abm.run, SGD(0.1), 1.5, 2), "n"),
        (partial(abm.run, SGD(0.1), 2, 1.5), "steps"),
        (partial(abm.run, SGD(0.1), 2, 3, record=[0, 1.5]), "record"),
        (partial(stochastic_descent, *FLOW, [1, 2.5], **DESCENT, batch=1), "steps"),
        (partial(predict, SGD(0.1), 1.5), "steps"),
        (partial(norm_of_gaussians, np.ones(1), 1.5), "n"),
        (partial(schedules.cosine, 1.5), "steps"),
        (partial(schedules.cosine, 3, 1.5), "warmup"),
        (partial(network_curvature, torch.sum, {}, np.random.default_rng(0), probes=2.5), "probes"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_every_count_is_checked(call: Callable[[], object], name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name}=[12].5: expected an integer >= "):
        call()
