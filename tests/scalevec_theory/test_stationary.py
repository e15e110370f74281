"""Stationary moments of one column, against the measure integrated over w on a grid, and where they do not exist."""

from __future__ import annotations

import numpy as np
import pytest

from scalevec_theory import stationary


def by_grid(c: int, sigma: float, R: float, decay_v: float, decay_W: float) -> tuple[float, float]:
    """E[v²] and E‖w‖² from the joint density on a grid: w along T and, for c = 2, across it."""
    v = np.linspace(-8, 8, 321)[:, None, None]
    along = np.linspace(-8, 8, 321)[None, :, None]
    across = np.linspace(-8, 8, 161)[None, None, :] if c == 2 else np.zeros((1, 1, 1))
    square = along**2 + across**2
    U = 0.5 * ((v * along - R) ** 2 + (v * across) ** 2 + decay_v * v**2 + decay_W * square)
    weight = np.exp(-2 * U / sigma**2)
    return float((v**2 * weight).sum() / weight.sum()), float((square * weight).sum() / weight.sum())


@pytest.mark.parametrize("c", [1, 2])
def test_moments_against_the_joint_density(c: int) -> None:
    arguments = (c, 0.8, 1.3, 0.5, 0.7)
    assert stationary.second_moments(*arguments) == pytest.approx(by_grid(*arguments), rel=1e-4)


@pytest.mark.parametrize(
    ("c", "decay_v", "decay_W", "law", "finite"),
    [(1, 0, 1, False, False), (2, 0, 1, True, False), (3, 0, 1, True, False), (4, 0, 1, True, True),
     (1, 1, 1, True, True), (8, 1, 0, False, False), (8, 0, 0, False, False)],
)  # fmt: skip
def test_where_the_law_and_its_moments_exist(c: int, decay_v: float, decay_W: float, law: bool, finite: bool) -> None:
    assert stationary.exists(c, decay_v, decay_W) is law
    assert stationary.finite_second_moment(c, decay_v, decay_W) is finite
    if law:
        v_square, w_square = stationary.second_moments(c, 0.5, 1.0, decay_v, decay_W)
        assert np.isfinite(v_square) == finite
        assert np.isfinite(w_square)
    else:
        with pytest.raises(ValueError, match="no stationary law"):
            stationary.second_moments(c, 0.5, 1.0, decay_v, decay_W)


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match=r"sigma=0"):
        stationary.second_moments(2, 0, 1, 1, 1)
    with pytest.raises(ValueError, match=r"decay_v=-1"):
        stationary.second_moments(2, 1, 1, -1, 1)
