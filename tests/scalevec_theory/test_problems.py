"""Problem spaces: what is drawn belongs to the space, and what violates an assumption does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from scalevec_theory.problems import (
    Between,
    Diagonal,
    Field,
    Identity,
    PositiveDefinite,
    Probabilities,
    ProblemSpace,
    Real,
    Zero,
)

KINDS: dict[str, Field] = {
    "real": Real("cd"),
    "between": Between("d", 0.5, 2.0),
    "zero": Zero("cd"),
    "identity": Identity("dd"),
    "diagonal": Diagonal("dd", 0.5, 2.0),
    "positive definite": PositiveDefinite("dd", 0.1, 5.0),
    "probabilities": Probabilities("dc"),
}
OUTSIDE = {
    "real": lambda x: x * np.nan,
    "between": lambda x: x + 2.0,
    "zero": lambda x: x + 1e-9,
    "identity": lambda x: 1.01 * x,
    "diagonal": lambda x: x + 1e-3,
    "positive definite": lambda x: x - 6.0 * np.eye(3),
    "probabilities": lambda x: 1.01 * x,
}
DIMS = {"c": 2, "d": 3}


@pytest.mark.parametrize("name", KINDS)
def test_draws_and_only_they_belong_to_their_field(name: str) -> None:
    kind = KINDS[name]
    z = np.random.default_rng(0).standard_normal((50, *kind.latent_shape(DIMS)))
    x = kind.decode(z, DIMS)
    assert x.shape == (50, *kind.shape(DIMS))
    assert kind.contains(x).all()
    assert not kind.contains(OUTSIDE[name](x)).any()


@pytest.mark.parametrize("name", ["real", "positive definite", "probabilities", "diagonal"])
def test_neighbours_are_near_and_different(name: str) -> None:
    kind = KINDS[name]
    rng = np.random.default_rng(1)
    x = kind.decode(rng.standard_normal((200, *kind.latent_shape(DIMS))), DIMS)
    y = kind.perturb(x, rng, 1e-3)
    relative = np.abs(y - x).reshape(200, -1).max(-1) / np.abs(x).reshape(200, -1).max(-1)
    assert relative.min() > 0 and relative.max() < 1e-2
    assert kind.contains(y).mean() > 0.5


@pytest.mark.parametrize(
    ("kind", "inside", "outside"),
    [
        (Real("d", 2.0), [[200.0, 0.0]], [[201.0, 0.0], [0.0, -201.0]]),
        (Between("d", 0.5, 2.0), [[0.5, 2.0]], [[0.49, 1.0], [1.0, 2.01]]),
        (Identity("dd"), [np.eye(2)], [np.eye(2) + 1e-9]),
        (Diagonal("dd", 0.5, 2.0), [np.diag([0.5, 2.0])], [np.diag([0.49, 1.0]), np.diag([1.0, 2.01])]),
        (PositiveDefinite("dd", 0.5, 2.0), [np.diag([0.6, 1.9])], [np.diag([0.49, 1.0]), np.diag([1.0, 2.01])]),
        (Probabilities("d"), [[0.0, 1.0]], [[-0.1, 1.1], [0.5, 0.5001]]),
    ],
)
def test_each_bound_of_a_field_is_a_bound(kind: Field, inside: list[Any], outside: list[Any]) -> None:
    assert kind.contains(np.array(inside)).all()
    assert not kind.contains(np.array(outside)).any()


def test_numbers_between_bounds_are_drawn_log_uniformly() -> None:
    x = Between("", 0.1, 10.0).decode(np.random.default_rng(0).standard_normal(4000), {})
    share = np.log10(x)
    assert share.mean() == pytest.approx(0.0, abs=0.05) and share.std() == pytest.approx(2 / np.sqrt(12), rel=0.05)


def test_problems_differ_in_their_overall_magnitude() -> None:
    draws = ProblemSpace("", {"d": (400,)}, {"x": Real("d")}).draw(200, {"d": 400}, np.random.default_rng(0))
    size = draws["x"].square().mean(-1).sqrt()
    assert 7 < float(size.max() / size.min()) < 15


def test_both_halves_of_a_symmetric_matrix_are_changed_together() -> None:
    assert list(PositiveDefinite("dd").groups((2, 2))) == [((0, 0),), ((1, 0), (0, 1)), ((1, 1),)]


def test_asymmetric_matrices_are_not_positive_definite() -> None:
    assert not PositiveDefinite("dd").contains(np.array([[[2.0, 0.5], [0.4, 2.0]]])).any()


SPACE = ProblemSpace(
    "correlated inputs", {"c": (1, 3), "d": (2,)}, {"H": PositiveDefinite("dd"), "T": Real("cd"), "rate": Between("")}
)


def test_the_same_seed_draws_the_same_problems() -> None:
    first, second, other = (SPACE.draw(5, DIMS, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert torch.equal(first["T"], second["T"]) and not torch.equal(first["T"], other["T"])


def test_a_problem_is_read_from_plain_numbers() -> None:
    p = SPACE.problem({"H": [[4, 1], [1, 0.3]], "T": [[0.2, 2], [1, 0]], "rate": 1})
    assert p.dims == {"c": 2, "d": 2} and len(p) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"H": [[1, 2], [2, 1]]}, "violates the assumptions"),
        ({"T": [1, 2]}, "T has shape"),
        ({"T": [[1.0, 2.0, 3.0]]}, "d=2 elsewhere"),
        ({"T": [[1.0, 2.0]] * 4}, "violates the assumptions"),
        ({"X": 1.0}, "this problem space has"),
    ],
)
def test_a_wrong_problem_is_refused_by_name(change: dict[str, object], message: str) -> None:
    values = {"H": [[4, 1], [1, 0.3]], "T": [[0.2, 2.0]], "rate": 1.0} | change
    with pytest.raises(ValueError, match=message):
        SPACE.problem(values)


def test_a_space_refuses_sizes_below_one_and_unknown_axes() -> None:
    with pytest.raises(ValueError, match="dims\\['d'\\]"):
        ProblemSpace("", {"d": (0,)}, {"T": Real("d")})
    with pytest.raises(ValueError, match="axes 'cd'"):
        ProblemSpace("", {"d": (1,)}, {"T": Real("cd")})


def test_a_size_that_no_field_has_is_not_the_name_of_a_field() -> None:
    with pytest.raises(ValueError, match="rename"):
        ProblemSpace("", {"n": (1, 2)}, {"n": Real("")})


@pytest.mark.parametrize("kind", [Between, Diagonal, PositiveDefinite])
@pytest.mark.parametrize(("low", "high"), [(-2.0, 2.0), (0.0, 1.0), (2.0, 1.0), (1.0, np.inf), (np.nan, 1.0)])
def test_an_interval_of_positive_numbers_is_one(kind: type[Between], low: float, high: float) -> None:
    with pytest.raises(ValueError, match=f"{kind.__name__}: low={low}, high={high}; expected 0 < low < high"):
        kind("dd", low, high)


@pytest.mark.parametrize("scale", [0.0, -1.0, np.inf, np.nan])
def test_real_numbers_have_a_positive_scale(scale: float) -> None:
    with pytest.raises(ValueError, match=f"Real: scale={scale}; expected > 0"):
        Real("d", scale)


def test_a_condition_across_fields_restricts_the_space() -> None:
    space = ProblemSpace("x > y", {}, {"x": Real(""), "y": Real("")}, where=lambda p: p["x"] > p["y"])
    inside = space.contains(space.draw(1000, {}, np.random.default_rng(0)))
    assert 0.4 < inside.double().mean() < 0.6
