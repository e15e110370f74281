"""Measures: each against what it must be where that is known, and against the same thing done by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from scalevec_theory.crossover import threshold_after
from scalevec_theory.optimizers import AdamW
from simulations.lm import measures
from simulations.lm.data import find_source
from simulations.lm.run import Laboratory, Run, make_run, set_up
from simulations.lm.training import train
from simulations.models import multipliers, predict_norms
from simulations.models.prediction import move_by_noise

SIZES = {"width": 16, "layers": 2, "heads": 2, "hidden": 64}
"""Large enough that `attach` looks for no redundancies, which takes seconds."""


def tiny(family: str = "llama", **settings) -> Run:
    small = {"data": "markov:8", "steps": 40, "warmup": 4, "batch": 4, "length": 16, "evaluations": 2, "held_out": 2}
    return make_run(family, SIZES, **{**small, "lr": 1e-2, "weight_decay": 1.0, **settings})


def moved_by_noise(run: Run) -> Laboratory:
    lab = set_up(run)
    move_by_noise(lab.model, lab.optimizers, lab.factors, torch.Generator().manual_seed(1), [run.steps])
    return lab


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_gradients_that_are_noise_give_the_sizes_and_displacements_of_noise(optimizer):
    run = tiny(optimizer=optimizer, multipliers="row+column", weight_decay=5.0)
    found = measures.abm(moved_by_noise(run), run.steps)
    assert found["size"] == pytest.approx(1, abs=0.05) and found["matrices"] == pytest.approx(1, abs=0.05)
    assert found["multipliers"] == pytest.approx(1, abs=0.1)


def test_sizes_are_those_that_predict_norms_gives():
    run = tiny()
    lab = set_up(run)
    predicted = predict_norms(
        lab.model, AdamW(run.lr, 1.0, betas=run.betas), run.steps, schedule="cosine", warmup=run.warmup,
        example=find_source(run.data).batch(0, 0, 2, 16)[0], groups=lab.groups,
    )  # fmt: skip
    alone = measures._noise_alone(run)
    for name, m in predicted.matrices.items():
        a = alone[name]
        rms = np.hypot(a.moved, a.retained * float(a.first.square().mean().sqrt()))
        assert np.allclose(rms, m.rms, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("orbits", {}, r"multipliers='row\+column'"),
        ("sizes", {}, "multipliers on queries and keys"),
        ("conserved", {"design": "none"}, "a design whose norm scales are learned"),
    ],
)
def test_a_measure_of_what_is_not_there_is_refused(name, settings, expected):
    with pytest.raises(ValueError, match=f"measures='{name}': expected {expected}"):
        measures.MEASURES[name](set_up(tiny(**settings)), 1)


def test_noise_alone_is_not_known_for_sgd():
    with pytest.raises(ValueError, match="optimizer='sgd': displacements by noise alone are known for adamw and muon"):
        measures.abm(set_up(tiny(optimizer="sgd")), 1)


def test_a_rescaled_matrix_has_its_equilibrium_and_its_share_of_the_start_is_the_same():
    plain, scaled = (measures._noise_alone(tiny(rescaled=r, rescale=3.0)) for r in ("", "feed_forward"))
    inside, outside = "layers.0.feed_forward.up.weight", "layers.0.attention.query.weight"
    assert np.allclose(scaled[inside].moved, 3 * plain[inside].moved, rtol=1e-3)
    assert np.allclose(scaled[inside].retained, plain[inside].retained)
    assert np.array_equal(scaled[outside].moved, plain[outside].moved)


def test_alignment_of_random_and_of_parallel_directions():
    lab = set_up(tiny())
    random = measures.alignment(lab, 0)
    assert random["hidden"] == pytest.approx(1, abs=0.3)
    with torch.no_grad():
        lab.model.norm.weight.copy_(torch.eye(16)[3])
        lab.model.head.weight.copy_(torch.eye(16)[3].expand(8, 16))
    assert measures.alignment(lab, 0)["head"] == pytest.approx(math.sqrt(16), rel=1e-4)


def test_branches_sizes_diversity_and_orbits_of_known_multipliers():
    lab = set_up(tiny("qwen3", multipliers="row+column"))
    with torch.no_grad():
        for name, m in multipliers(lab.model).items():
            p = dict(lab.model.named_parameters())[name]
            if ".query." in m.parameter:
                p.fill_(2.0)
            if ".up." in m.parameter:
                p.fill_(4.0)
    found, before = measures.branches(lab, 0), measures.branches(set_up(tiny("qwen3")), 0)
    assert found["query_value"] == pytest.approx(2 * before["query_value"], rel=1e-5)
    assert found["gate_up"] == pytest.approx(before["gate_up"] / 4, rel=1e-5)
    assert measures.sizes(lab, 0)["query_key"] == pytest.approx(2, rel=1e-5)
    assert measures.orbits(lab, 0) == pytest.approx({"up_down": math.log(4), "query": 2}, rel=1e-5)


def test_rows_and_blocks_that_are_alike_have_no_diversity():
    lab = set_up(tiny())
    with torch.no_grad():
        for module in lab.model.modules():
            if isinstance(module, torch.nn.Linear):
                module.weight.div_(module.weight.norm(dim=1, keepdim=True))
    before = measures.diversity(lab, 0)
    assert before["rows"] < 1e-5
    with torch.no_grad():
        lab.model.layers[0].feed_forward.down.weight[0] *= 100
    after = measures.diversity(lab, 0)
    assert after["rows"] == pytest.approx(math.log(100) / 4 / 14, rel=1e-3)  # one row of sixteen, one of 14 matrices
    assert after["blocks"] > before["blocks"] + 0.5
    assert after["feed_forward_0"] > 10 * before["feed_forward_0"]
    outputs = [x for name, x in after.items() if name.startswith(("attention_", "feed_forward_"))]
    assert len(outputs) == 4 and after["blocks"] == pytest.approx(np.std(np.log(outputs)))


def test_small_steps_of_gradient_descent_conserve_and_adam_does_not():
    settings = {"weight_decay": 0.0, "clip": 0.0, "measures": ("conserved",), "steps": 10, "warmup": 0}
    sgd, adam = (
        train(tiny(**settings, optimizer=o, lr=lr))["measured"].sel(quantity="conserved.share")[-1]
        for o, lr in (("sgd", 3e-3), ("adamw", 3e-3))
    )
    assert sgd < 0.05 and adam > 0.5


def test_clipping_counts_the_share_of_multipliers():
    lab = set_up(tiny(multipliers="row"))
    before = measures.clipping(lab, 0)["share"]
    with torch.no_grad():
        for m in (m for m in lab.model.modules() if hasattr(m, "parametrizations")):
            m.parametrizations.weight.original.mul_(10)
            m.parametrizations.weight[0].vector.value.mul_(0.1)
    assert 0 < before < measures.clipping(lab, 0)["share"] < 1


def gradients(lab: Laboratory, signal: float, seed: int = 0):
    """As `measures._gradient`: noise of strength 1 about a mean of ``signal``."""
    generator = torch.Generator().manual_seed(seed)
    named = {n: p for n, p in lab.model.named_parameters() if p.requires_grad}
    return lambda *_: {n: signal + torch.randn(p.shape, generator=generator) for n, p in named.items()}


@pytest.mark.parametrize(
    ("snr", "expected"), [(0.0, 1.0), (0.5, 1 + 0.25 * measures.BATCHES), (1.0, 1 + measures.BATCHES)]
)
def test_signal_of_gradients_without_noise_and_of_noise(monkeypatch: pytest.MonkeyPatch, snr, expected):
    lab = set_up(tiny())
    monkeypatch.setattr(measures, "_gradient", gradients(lab, snr))
    assert measures.signal(lab, 1)["matrices"] == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("multiple", [0.3, 2.0, 5.0])
def test_what_a_constant_signal_moves_is_expected_and_told_by_the_crossover(monkeypatch: pytest.MonkeyPatch, multiple):
    """The run's own optimizer is given gradients of one signal and of noise."""
    run = tiny(multipliers="row", weight_decay=5.0)
    lab = set_up(run)
    lr = run.lr * torch.from_numpy(lab.factors)
    snr = multiple * float(threshold_after(lr, 1 - 5.0 * lr)[-1])
    given = gradients(lab, snr, seed=1)
    named = dict(lab.model.named_parameters())
    for factor in lab.factors:
        for name, gradient in given().items():
            named[name].grad = gradient
        for group in lab.optimizers[0].param_groups:
            group["lr"] = run.lr * group.get("lr_factor", 1.0) * float(factor)
        lab.optimizers[0].step()
    monkeypatch.setattr(measures, "_gradient", gradients(lab, snr))
    found = measures.signal(lab, run.steps)
    assert found["departure"] == pytest.approx(1, abs=0.15)
    assert found["above_query"] == pytest.approx(multiple**2, rel=0.1, abs=0.1)
    assert found["moved_query"] == pytest.approx(math.sqrt((1 + multiple**2) / (1 + snr**2)), rel=0.13)
    assert found["agree"] > 0.9 and {"above_query_row", "moved_attention_norm", "above_norm", "above_head"} <= set(
        found
    )


def test_a_parameter_that_moves_without_a_signal_is_not_told_by_the_crossover(monkeypatch: pytest.MonkeyPatch):
    run = tiny()
    lab = moved_by_noise(run)
    monkeypatch.setattr(measures, "_gradient", gradients(lab, 10.0))
    assert measures.signal(lab, run.steps)["agree"] == 0


class Bowl(torch.nn.Module):
    """½ Σ h w², whose top eigenvalue is max h and whose largest stable step is 2 / max h."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(5))
        self.register_buffer("h", torch.tensor([0.1, 0.5, 1.0, 2.0, 8.0]))

    def loss(self, tokens, targets):
        found = (0.5 * self.h * self.w.square()).sum()
        return found, found


def test_sharpness_of_a_bowl():
    run = tiny()
    lab = Laboratory(run, Bowl(), find_source(run.data), None, [], np.ones(1))  # type: ignore[arg-type]
    found = measures.sharpness(lab, 0)
    assert found["eigenvalue"] == pytest.approx(8, rel=1e-2)
    assert 0.25 / 2**0.25 <= found["step"] <= 0.25 * 2**0.01
    assert torch.equal(lab.model.w, torch.ones(5))


def test_what_is_measured_is_stored_and_changes_nothing(tmp_path):
    run = tiny(steps=8, measures=("branches", "signal"), multipliers="row")
    bare = train(tiny(steps=8, multipliers="row"))
    train(run, tmp_path, stop_after=5)
    found = train(run, tmp_path)
    assert np.array_equal(found["loss"], bare["loss"]) and "measured" not in bare
    assert found["measured"].dims == ("later", "quantity") and list(found["later"]) == [4, 8]
    assert np.isfinite(found["measured"]).all()
    assert "branches.query_value" in found["quantity"]
