"""Measures: each against what it must be where that is known, and against the same thing done by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

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


def test_signal_of_gradients_without_noise_and_of_noise(monkeypatch: pytest.MonkeyPatch):
    lab = set_up(tiny())
    named = {n: p for n, p in lab.model.named_parameters() if p.requires_grad}
    generator = torch.Generator().manual_seed(0)
    monkeypatch.setattr(measures, "_displacements", lambda lab, step: {n: float(i) for i, n in enumerate(named)})

    def made(signal: float):
        def gradient(lab, tokens, targets):
            return {n: signal + torch.randn(p.shape, generator=generator) for n, p in named.items()}

        return gradient

    monkeypatch.setattr(measures, "_gradient", made(0.0))
    assert measures.signal(lab, 1)["matrices"] == pytest.approx(1, abs=0.1)
    monkeypatch.setattr(measures, "_gradient", made(1.0))
    assert measures.signal(lab, 1)["matrices"] == pytest.approx(1 + measures.BATCHES, rel=0.1)


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
