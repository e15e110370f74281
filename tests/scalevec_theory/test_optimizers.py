"""Bad hyperparameters are named, and schedules have the shapes they are known by."""

from __future__ import annotations

import numpy as np
import pytest

from scalevec_theory.optimizers import OPTIMIZERS, SGD, Adam, AdamW, Lion, Muon, RMSProp, SignSGD
from scalevec_theory.schedules import constant, cosine, wsd


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: AdamW(0.0), "lr=0.0"),
        (lambda: AdamW(float("nan")), "lr=nan"),
        (lambda: AdamW(0.1, -0.1), "weight_decay=-0.1"),
        (lambda: Adam(0.1, betas=(0.9, 1.0)), r"betas=\(0.9, 1.0\)"),
        (lambda: Lion(0.1, betas=(-0.1, 0.9)), r"betas=\(-0.1, 0.9\)"),
        (lambda: Adam(0.1, eps=-1.0), "eps=-1.0"),
        (lambda: Adam(0.1, eps=float("inf")), "eps=inf"),
        (lambda: RMSProp(0.1, alpha=1.0), "alpha=1.0"),
        (lambda: SGD(0.1, momentum=1.0), "momentum=1.0"),
        (lambda: SGD(0.1, nesterov=True), "momentum=0"),
        (lambda: SignSGD(0.1, momentum=-0.5), "momentum=-0.5"),
        (lambda: Muon(0.1, ns_steps=-1), "ns_steps=-1"),
        (lambda: Muon(0.1, adjust_lr="half"), "adjust_lr='half'"),
        (lambda: wsd(10, 11), "warmup=11"),
        (lambda: wsd(10, decay=1.5), "decay=1.5"),
        (lambda: constant(0), "steps=0"),
    ],
)
def test_bad_values_are_named(make, told) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=told):
        make()


def test_names_are_those_of_the_classes() -> None:
    assert {name: kind.__name__.lower() for name, kind in OPTIMIZERS.items()} == {name: name for name in OPTIMIZERS}


def test_schedules_by_hand() -> None:
    assert constant(4, 2).tolist() == [0.5, 1, 1, 1]
    np.testing.assert_allclose(cosine(6, 2), [0.5, 1, 0.5 + 0.5 / 2**0.5, 0.5, 0.5 - 0.5 / 2**0.5, 0], atol=1e-15)
    np.testing.assert_allclose(wsd(10, 2, decay=0.4), [0.5, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25, 0])
    assert wsd(3, decay=0.0).tolist() == [1, 1, 1]
