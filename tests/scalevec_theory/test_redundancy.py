"""The redundancy finder on networks small enough to know everything about."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from scalevec_theory.redundancy import Redundancies, Site, redundancies, verify


class Net(nn.Module):
    """x ↦ D f(U x), with an optional scale of value offset + w on x and a choice of f."""

    def __init__(self, f, offset: float | None = None, epsilon: float | None = None) -> None:
        super().__init__()
        g = torch.Generator().manual_seed(0)
        self.f, self.offset, self.epsilon = f, offset, epsilon
        self.up = nn.Parameter(torch.randn(5, 3, generator=g, dtype=torch.float64))
        self.down = nn.Parameter(torch.randn(2, 5, generator=g, dtype=torch.float64))
        if offset is not None:
            self.w = nn.Parameter(torch.rand(3, generator=g, dtype=torch.float64) + 0.5)
        self.x = torch.randn(60, 3, generator=g, dtype=torch.float64)

    def forward(self) -> Tensor:
        x = self.x if self.offset is None else self.x * (self.offset + self.w)
        h = self.f(x @ self.up.T)
        if self.epsilon is not None:
            h = h / (h.square().mean(-1, keepdim=True) + self.epsilon).sqrt()
        return h @ self.down.T


def named(result: Redundancies) -> dict[str, int]:
    return {" ~ ".join(sorted(map(str, f.sites))): f.count for f in result.families}


def test_relu_scales_pass_through_and_tanh_scales_do_not() -> None:
    relu = redundancies(net := Net(torch.relu), net)
    assert named(relu) == {"down columns ~ up rows": 5}
    assert (relu.nullity, relu.trivial, relu.unexplained, relu.unseen) == (7, 2, 0, 0)
    tanh = redundancies(net := Net(torch.tanh), net)
    assert named(tanh) == {} and tanh.nullity == tanh.trivial == 2


def test_a_parameter_without_axes_is_a_multiplier_too() -> None:
    class Scaled(Net):
        def __init__(self) -> None:
            super().__init__(torch.tanh)
            self.s = nn.Parameter(torch.tensor(0.7, dtype=torch.float64))

        def forward(self) -> Tensor:
            return self.s * super().forward()

    (family,) = redundancies(net := Scaled(), net).families
    assert {str(site) for site in family.sites} >= {"s"} and family.count == 1 and family.change < 1e-12


def test_generators_are_the_symmetries_themselves() -> None:
    (family,) = redundancies(net := Net(torch.relu), net).families
    rows, columns = (family.generators[Site(n, k)] for n, k in (("up", "rows"), ("down", "columns")))
    np.testing.assert_allclose(rows, np.eye(5), atol=1e-9)
    np.testing.assert_allclose(columns, -np.eye(5), atol=1e-9)
    assert family.change < 1e-12 < 1e-3 < family.without


def test_a_scale_with_an_offset_is_redundant_as_the_sum() -> None:
    net = Net(torch.tanh, offset=1.0)
    right = redundancies(net, net, offsets={"w": 1.0})
    assert named(right) == {"up columns ~ w": 3} and right.families[0].change < 1e-12
    np.testing.assert_allclose(right.families[0].generators[Site("up", "columns")], -np.eye(3), atol=1e-9)
    wrong = redundancies(net, net)
    assert named(wrong) == {"up columns ~ w": 3} and wrong.families[0].change > 1e-3
    assert wrong.families[0].first_order and not right.families[0].first_order


class Shifted(nn.Module):
    """A linear unit behind another, both with biases: a shift of the first bias can be undone by the second."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 2).double(), nn.Linear(2, 2).double()
        g = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=g))
        self.x = torch.randn(60, 3, generator=g, dtype=torch.float64)

    def forward(self) -> Tensor:
        return self.second(self.first(self.x))


def test_shifts_of_biases_do_not_hide_symmetries() -> None:
    result = redundancies(net := Shifted(), net)
    symmetries = [f for f in result.families if not f.first_order]
    assert {" ~ ".join(map(str, f.sites)): f.count for f in symmetries} == {
        "first.weight rows ~ first.bias ~ second.weight columns": 2
    }
    assert symmetries[0].change < 1e-12 and result.unexplained == 0
    (shift,) = (f for f in result.families if f.first_order)
    assert " ~ ".join(map(str, shift.sites)) == "first.bias ~ second.bias" and shift.change > 1e-3
    assert "2 symmetries, to first order only" in str(shift) and "only" not in str(symmetries[0])


def test_a_norm_makes_one_scale_redundant_up_to_its_epsilon() -> None:
    exact = redundancies(net := Net(torch.square, epsilon=0.0), net)
    assert (exact.nullity, exact.trivial, exact.unexplained) == (3, 2, 0)
    assert sum(family.count for family in exact.families) == 1
    broken = Net(torch.square, epsilon=1e-9)
    assert redundancies(broken, broken).nullity == 2
    assert redundancies(broken, broken, null=1e-5).nullity == 3


def test_parameters_are_left_as_they_were_and_the_seed_decides() -> None:
    net = Net(torch.relu)
    before = [p.detach().clone() for p in net.parameters()]
    first, second = (str(redundancies(net, net, seed=4)) for _ in range(2))
    assert first == second
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), before, strict=True))


def test_a_wrong_symmetry_changes_the_outputs() -> None:
    net = Net(torch.tanh)
    change, _ = verify(net, net, {Site("up", "rows"): np.eye(5), Site("down", "columns"): -np.eye(5)})
    assert change > 1e-2


def test_a_dead_multiplier_is_counted_and_not_called_redundant() -> None:
    net = Net(torch.relu)
    with torch.no_grad():
        net.up[0] = -net.up[0].abs() * 0
    result = redundancies(net, net)
    assert result.unseen == 2 and named(result) == {"down columns ~ up rows": 4}


def test_prints_named_pairs() -> None:
    text = str(redundancies(net := Net(torch.relu), net))
    assert "up rows ~ down columns: 5 symmetries" in text and "up rows[0] ^(+1)" in text


def test_refuses_what_cannot_be_decided() -> None:
    net = Net(torch.relu)
    with pytest.raises(ValueError, match=r"offsets=.*nothing"):
        redundancies(net, net, offsets={"nothing": 1.0})
    with pytest.raises(ValueError, match="returned 8 numbers"):
        redundancies(net, lambda: net()[:4])
    with pytest.raises(ValueError, match="no gap"):
        redundancies(net, net, null=0.05)
    with pytest.raises(ValueError, match="not finite"):
        redundancies(net, lambda: net() / 0)
    with pytest.raises(ValueError, match="without a gradient"):
        redundancies(net, lambda: net().detach())
    with pytest.raises(ValueError, match="no parameter"):
        redundancies(nn.Identity(), net)
    with pytest.raises(ValueError, match="changes with none of 15 multipliers"):
        redundancies(net, lambda: net() * 0)
    with pytest.raises(ValueError, match="float32"):
        redundancies(single := net.float(), single)
