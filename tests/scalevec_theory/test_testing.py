"""The kit for new claims: assertions pass on what is true, and fail with a counterexample that runs when pasted."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import find, given, settings
from hypothesis import strategies as st
from torch import Tensor

from scalevec_theory import testing
from scalevec_theory.claim import Margin, Scope
from scalevec_theory.flow import gradient_flow
from scalevec_theory.losses import CrossEntropy, LeastSquares
from scalevec_theory.parametrizations import BUILT_IN, DUAL_SCALE, INPUT_SCALE, PLAIN, Parametrization
from scalevec_theory.problems import Problems, ProblemSpace, Real
from scalevec_theory.registry import find_scopes
from scalevec_theory.scopes import conserved, grows_like

Quantity = Callable[[Mapping[str, Tensor]], Tensor]


def conserved_quantity(blocks):  # type: ignore[no-untyped-def]
    return blocks["v"] ** 2 - (blocks["W"] ** 2).sum(-2)


def wrong_quantity(blocks):  # type: ignore[no-untyped-def]
    return blocks["v"] ** 2 - 2 * (blocks["W"] ** 2).sum(-2)


def cubic(x: torch.Tensor) -> torch.Tensor:
    return 2 * x**3


def failed(x: Tensor) -> Margin:
    return Margin(torch.full_like(x, math.nan), torch.zeros_like(x))


def paste(error: AssertionError) -> None:
    """Run the counterexample's code as a user would, and see that it fails when its margin is denied."""
    code = str(error).split("to paste and run:")[1]
    exec(code, {})
    with pytest.raises(AssertionError):
        exec(code.replace("margin < 0", "margin > 0"), {})


def test_conserved() -> None:
    testing.assert_conserved(INPUT_SCALE, conserved_quantity, budget=64)
    with pytest.raises(AssertionError) as caught:
        testing.assert_conserved(INPUT_SCALE, wrong_quantity, budget=64)
    paste(caught.value)


def test_a_quantity_given_as_a_lambda_is_pasted_with_its_source() -> None:
    with pytest.raises(AssertionError) as caught:
        testing.assert_conserved(INPUT_SCALE, lambda blocks: blocks["v"], budget=64)
    paste(caught.value)


def test_what_a_lambda_takes_from_around_it_and_the_accuracy_are_pasted_along() -> None:
    k = 2
    with pytest.raises(AssertionError) as caught:
        testing.assert_conserved(INPUT_SCALE, lambda blocks: blocks["v"] ** k, budget=64)
    assert "\nk = 2\n" in str(caught.value)
    paste(caught.value)
    nearly = 5e-11  # conserved at the accuracy of 1e-8, and not at 1e-11
    with pytest.raises(AssertionError) as caught:
        testing.assert_conserved(
            INPUT_SCALE,
            lambda blocks: blocks["v"] ** 2 - (blocks["W"] ** 2).sum(-2) + nearly * blocks["v"],
            accuracy=1e-11,
            dims={"c": (1,), "d": (1, 2)},
            budget=64,
        )
    assert "accuracy=1e-11" in str(caught.value) and "dims={'c': (1,), 'd': (1, 2)}" in str(caught.value)
    paste(caught.value)


def test_what_cannot_be_pasted_is_said_and_has_a_name_of_its_own() -> None:
    second = Parametrization("second", {"W": "cd"}, lambda W: W, lambda W: {})
    slower = Parametrization("slower", {"W": "cd"}, lambda W: W / 2, lambda W: {})
    with pytest.raises(AssertionError) as caught:
        testing.assert_dominates(slower, second, inputs="whitened", budget=64)
    message = str(caught.value)
    assert "once what is a comment is bound, to paste and run" in message
    assert "dominates(value, value_2, " in message and "# value_2 = Parametrization(" in message
    margins = re.findall(r"margin (-[0-9.e-]+)", message)
    assert len(margins) == 2 and all(float(m) < 0 for m in margins)


@pytest.mark.parametrize(
    ("quantity", "message"),
    [
        (lambda blocks: (blocks["v"] ** 2).sum(), r"has shape \(\): expected a tensor \(\d+, 4, '...'\)"),
        (lambda blocks: blocks["v"].sum(1), r"has shape \(\d+, \d+\): expected"),
        (lambda blocks: 1.0, "has type float: expected a tensor"),
    ],
)
def test_a_quantity_of_the_wrong_kind_is_told_what_it_should_be(quantity: Quantity, message: str) -> None:
    scope = conserved(INPUT_SCALE, quantity, dims={"c": (3,), "d": (5,)})
    assert scope.space is not None and scope.margin is not None
    problems = scope.space.draw(7, {"c": 3, "d": 5}, np.random.default_rng(0))
    with pytest.raises(ValueError, match=message):
        scope.margin(problems, 1e-8)


def test_dominates() -> None:
    testing.assert_dominates(INPUT_SCALE, PLAIN, inputs="uncorrelated", budget=500)
    with pytest.raises(AssertionError) as caught:
        testing.assert_dominates(PLAIN, INPUT_SCALE, inputs="uncorrelated", budget=500)
    paste(caught.value)


def test_a_violation_of_one_part_in_ten_thousand_is_seen() -> None:
    with pytest.raises(AssertionError) as caught:
        testing.assert_dominates(DUAL_SCALE, INPUT_SCALE, inputs="whitened")
    paste(caught.value)


def test_exponent() -> None:
    testing.assert_exponent(cubic, 3, low=0.1, high=10)
    with pytest.raises(AssertionError) as caught:
        testing.assert_exponent(cubic, 2.9, low=0.1, high=10)
    paste(caught.value)


@pytest.mark.parametrize("function", [lambda x: -x, lambda x: x - 0.5, lambda x: 0 * x])
def test_growth_of_what_is_not_positive_is_an_error(function: Callable[[Tensor], Tensor]) -> None:
    scope = grows_like(function, 1, low=0.1, high=10)
    assert scope.space is not None and scope.margin is not None
    with pytest.raises(ValueError, match=r"function\(.*\) = .*: expected values > 0"):
        scope.margin(scope.space.draw(100, {}, np.random.default_rng(0)), 1e-8)


@pytest.mark.parametrize("function", [lambda x: 3.0, lambda x: x.sum(), lambda x: x[:, None]])
def test_growth_of_what_is_not_one_value_for_each_point_is_an_error(function: Callable[[Tensor], Tensor]) -> None:
    scope = grows_like(function, 1, low=0.1, high=10)
    assert scope.space is not None and scope.margin is not None
    with pytest.raises(ValueError, match=r"function of 100 points gave .*: expected a tensor of shape \(100,\)"):
        scope.margin(scope.space.draw(100, {}, np.random.default_rng(0)), 1e-8)


@pytest.mark.parametrize("sizes", [2, (), (0, 1), (2.0,), (True,), "2"])
def test_sizes_that_are_none_are_told_what_they_should_be(sizes: Any) -> None:
    with pytest.raises(ValueError, match=r"dims\['c'\]=.*: expected a tuple of one or more integers >= 1"):
        conserved(INPUT_SCALE, lambda blocks: blocks["v"], dims={"c": sizes})


def test_sizes_not_named_keep_their_defaults() -> None:
    space = conserved(INPUT_SCALE, lambda blocks: blocks["v"], dims={"c": (7,)}).space
    assert space is not None and space.dims == {"c": (7,), "d": (1, 2, 3)}


def test_holds_and_refuted() -> None:
    ((_, adam),) = find_scopes("conservation:adam")
    testing.assert_refuted("conservation:adam", budget=64)
    testing.assert_holds("conservation:gd-increment", budget=64)
    with pytest.raises(AssertionError) as caught:
        testing.assert_holds(adam, budget=64)
    paste(caught.value)
    with pytest.raises(AssertionError, match="expected a counterexample"):
        testing.assert_refuted("conservation:gd-increment", budget=64)


def test_what_is_open_neither_holds_nor_is_refuted() -> None:
    """Every margin fails to compute: no assertion of the kit may pass."""
    nothing = Scope("open", "open", True, ProblemSpace("x", {}, {"x": Real("")}), lambda p, a: failed(p["x"]))
    for function in (testing.assert_holds, testing.assert_refuted):
        with pytest.raises(AssertionError, match="verdict: inconclusive"):
            function(nothing, budget=64)
    with pytest.raises(AssertionError, match="verdict: inconclusive"):
        testing.assert_exponent(lambda x: x + math.nan * (x > 0), 1, low=0.1, high=10, budget=64)


def test_the_seed_reaches_the_measurement() -> None:
    seen = []
    scope = Scope("seen", "seen", True, measure=lambda setting: seen.append(setting.seed) or [])
    for seed in (0, 7):
        with pytest.raises(AssertionError, match="not run"):
            testing.assert_holds(scope, seed=seed)
    assert seen == [0, 7]


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_problems_belong_to_their_space(data: st.DataObject) -> None:
    from scalevec_theory.problems import Between, PositiveDefinite, Probabilities

    space = ProblemSpace(
        "mixed",
        {"c": (1, 3), "d": (2, 4)},
        {"H": PositiveDefinite("dd"), "T": Real("cd"), "y": Probabilities("dc"), "rate": Between("")},
    )
    problems: Problems = data.draw(testing.problems(space))
    assert len(problems) == 1 and bool(space.contains(problems)[0])


@given(st.data())
@settings(max_examples=20, deadline=None)
def test_a_start_of_any_parametrization_flows_down_any_loss(data: st.DataObject) -> None:
    parametrization, loss = data.draw(testing.parametrizations()), data.draw(testing.losses(c=2, d=3))
    flow = gradient_flow(parametrization, loss, data.draw(testing.starts(parametrization, c=2, d=3)), [0.0, 0.1])
    assert bool(flow.converged.all()) and bool((flow.loss[:, 1] <= flow.loss[:, 0]).all())


@pytest.mark.parametrize("parametrization", BUILT_IN.values(), ids=BUILT_IN.keys())
def test_every_built_in_parametrization_is_drawn(parametrization: Parametrization) -> None:
    find(testing.parametrizations(), lambda drawn: drawn is parametrization)


@pytest.mark.parametrize("kind", [LeastSquares, CrossEntropy])
def test_every_kind_of_loss_is_drawn(kind: type) -> None:
    find(testing.losses(c=1, d=1), lambda loss: isinstance(loss, kind))


def test_a_start_away_from_zero_can_be_asked_for() -> None:
    with pytest.raises(AssertionError, match="zero_start=False"):
        testing.assert_dominates(INPUT_SCALE, PLAIN, inputs="uncorrelated", zero_start=False, budget=500)


@given(testing.parametrizations(), testing.losses(c=2, d=3))
@settings(max_examples=30, deadline=None)
def test_losses_fit_their_sizes(parametrization: Parametrization, loss: LeastSquares | CrossEntropy) -> None:
    theta = torch.zeros(1, 2, 3, dtype=torch.float64)
    assert loss.value(theta).shape == (1,) and loss.gradient(theta).shape == theta.shape
    assert re.fullmatch(r"[a-z-]+", parametrization.name)
