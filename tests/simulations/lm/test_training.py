"""Training: resumption, data parallelism, accumulation, divergence, designs, and what is recorded."""

from __future__ import annotations

import io
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray
from click.testing import CliRunner
from torch._dynamo.utils import counters
from workers import in_two_processes

from scalevec_theory.schedules import SCHEDULES
from simulations.lm import training
from simulations.lm.commands import course_table
from simulations.lm.commands import train as train_command
from simulations.lm.data import find_source
from simulations.lm.model import Decoder, count_parameters
from simulations.lm.run import Run, make_run, set_up, widened
from simulations.lm.training import Diverged, train
from simulations.models import multipliers
from simulations.runs import RunStore
from simulations.settings import parse_settings
from simulations.store import unseal

SIZES = {"width": 16, "layers": 2, "heads": 2, "hidden": 24}


def tiny(family: str = "llama", sizes: dict[str, int] | None = None, **settings) -> Run:
    small = {"data": "markov:8", "steps": 8, "warmup": 2, "batch": 4, "length": 16, "evaluations": 2, "held_out": 2}
    more = {"state": 8, "mixer_heads": 2, "mixer_head_dim": 8} if family == "hybrid" else {}
    return make_run(family, {**SIZES, **more, **(sizes or {})}, **{**small, **settings})


def same(first: xarray.Dataset, second: xarray.Dataset) -> bool:
    return all(np.array_equal(first[name], second[name]) for name in ("loss", "held_out_loss", "gradient_norm", "rms"))


@pytest.mark.parametrize("settings", [{}, {"optimizer": "muon"}, {"design": "HG+OR", "multipliers": "row"}])
def test_a_run_that_was_stopped_ends_as_if_it_had_not_been(tmp_path: Path, settings):
    run = tiny(**settings)
    whole = train(run)
    assert train(run, tmp_path, stop_after=3) is None
    assert [f.suffix for f in tmp_path.iterdir()] == [".checkpoint"]
    resumed = train(run, tmp_path)
    assert same(whole, resumed)
    assert [f.name for f in tmp_path.iterdir()] == [f"{run.key}.nc"]
    assert same(whole, RunStore(tmp_path).get(run.key))


def test_a_finished_run_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = tiny()
    first = train(run, tmp_path)
    monkeypatch.setattr(training, "set_up", None)
    assert same(first, train(run, tmp_path))


def test_a_run_stops_by_the_clock_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = tiny()
    whole = train(run)
    ticks = iter(range(100))
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: next(ticks))
        assert train(run, tmp_path, until=4) is None
    assert torch.load(checkpoint_of(tmp_path, run), weights_only=True)["step"] == 3
    with monkeypatch.context() as patch:
        patch.setattr(training, "set_up", None)
        assert train(run, tmp_path, until=time.time() - 1) is None
    assert same(whole, train(run, tmp_path, until=time.time() + 1000))
    assert same(whole, train(run, tmp_path, until=time.time() - 1))


def test_half_precision_is_as_near_as_its_digits():
    exact, rounded = (train(tiny(precision=precision)) for precision in ("float32", "bfloat16"))
    error = np.abs(rounded["loss"] / exact["loss"] - 1).max()
    assert 0 < error < torch.finfo(torch.bfloat16).eps


def checkpoint_of(folder: Path, run: Run) -> io.BytesIO:
    return io.BytesIO(unseal((folder / f"{run.key}.checkpoint").read_bytes()))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What `torch.compile` was asked for; it traces, but leaves the code to torch as it is."""
    asked = []

    def compile(function):
        asked.append(function)
        return genuine(function, backend="eager")

    genuine = torch.compile
    monkeypatch.setattr(training, "_compiled", {})
    monkeypatch.setattr(torch, "compile", compile)
    return asked


def test_seeds_share_what_is_compiled_and_nothing_else(tmp_path: Path, compiled):
    def graphs() -> int:
        return counters["stats"]["unique_graphs"]

    runs = [tiny(sizes={"layers": 1}, design="HG+OR", compile=True, seed=seed) for seed in (0, 1)]
    train(runs[0])
    before = graphs()
    train(runs[1], tmp_path, stop_after=3)
    assert same(train(runs[1], tmp_path), train(replace(runs[1], compile=False)))
    assert before > 0 and graphs() == before and len(compiled) == 1


def test_more_models_than_torch_compiles_at_once(compiled, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch, "compile", lambda function: function)
    resets = []
    monkeypatch.setattr(torch.compiler, "reset", lambda: resets.append(len(training._compiled)))
    for width in range(2, 20, 2):
        lab = set_up(tiny(sizes={"layers": 1, "width": width, "heads": 1}, compile=True))
        training._loss_function(lab)
    assert resets == [0] and len(training._compiled) == 1
    assert torch._dynamo.config.recompile_limit == training.COMPILED_AT_ONCE


def damaged(content: bytes) -> list[bytes]:
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    return [content[:-100], b"", bytes(flipped), b"PK" + content]


@pytest.mark.parametrize("how", range(4))
def test_a_damaged_checkpoint_is_named_set_aside_and_training_starts_over(tmp_path: Path, how, caplog):
    run = tiny()
    train(run, tmp_path, stop_after=3)
    path = tmp_path / f"{run.key}.checkpoint"
    path.write_bytes(damaged(path.read_bytes())[how])
    assert same(train(run), train(run, tmp_path))
    assert f"{path}: not a checkpoint of this run (" in caplog.text and "training starts over" in caplog.text
    assert caplog.text.count("\n") == 1
    assert sorted(f.name.partition("-")[0] for f in tmp_path.iterdir()) == [f"{path.name}.damaged", f"{run.key}.nc"]


def test_a_checkpoint_from_before_they_were_sealed_is_gone_on_from(tmp_path: Path, caplog):
    run = tiny()
    train(run, tmp_path, stop_after=3)
    path = tmp_path / f"{run.key}.checkpoint"
    path.write_bytes(unseal(path.read_bytes()))
    assert same(train(run), train(run, tmp_path)) and not caplog.text


def test_parts_of_a_batch_add_up_to_it():
    whole, parts = train(tiny(batch=8)), train(tiny(batch=8, accumulate=4))
    assert np.allclose(whole["loss"], parts["loss"], rtol=1e-4)
    assert np.allclose(whole["gradient_norm"], parts["gradient_norm"], rtol=1e-3)


def test_two_processes_train_as_one(tmp_path: Path):
    in_two_processes(train, tiny(), tmp_path)
    one, two = train(tiny()), RunStore(tmp_path).get(tiny().key)
    assert np.allclose(one["loss"], two["loss"], rtol=1e-4)
    assert np.allclose(one["rms"], two["rms"], rtol=1e-3)


@pytest.mark.parametrize("scales", ["iwd", "none", "output"])
def test_a_run_is_what_torch_does_by_hand(scales):
    """Schedule, clipping, decay of the right parameters, the balancing loss, and the held-out loss of held-out text."""
    sizes = {"experts": 4, "balance": 0.5}
    run = tiny("gemma", sizes, scales=scales, clip=0.3, weight_decay=0.5, lr=0.02, schedule="cosine", steps=6)
    source, model = find_source(run.data), Decoder(run.architecture, run.seed)
    output = {n for n, _ in model.named_parameters() if "out_norm" in n or "query_norm" in n or "key_norm" in n}
    scale = {n for n, p in model.named_parameters() if p.ndim == 1}
    decayed = {"iwd": scale - output, "none": set(), "output": output}[scales]
    named = list(model.named_parameters())
    groups = [
        {"params": [p for n, p in named if n in decayed or n not in scale], "weight_decay": 0.5},
        {"params": [p for n, p in named if n in scale - decayed], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=run.lr, betas=run.betas)
    losses = []
    for step, factor in enumerate(SCHEDULES["cosine"](run.steps, run.warmup)):
        logits, balance = model.logits_and_balance(source.batch(run.seed, step, run.batch, run.length)[0])
        targets = source.batch(run.seed, step, run.batch, run.length)[1]
        losses.append(torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()))
        (losses[-1] + 0.5 * balance).backward()
        assert float(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.3)) > 0.3
        for group in optimizer.param_groups:
            group["lr"] = run.lr * factor
        optimizer.step()
        optimizer.zero_grad()
    found = train(run)
    assert np.allclose(found["loss"], [float(x) for x in losses], rtol=1e-4)
    rms = [float(p.detach().square().mean().sqrt()) for p in dict(model.named_parameters()).values()]
    assert np.allclose(found["rms"][-1], rms, rtol=1e-3)


def test_the_held_out_loss_is_that_of_the_text_held_out(tmp_path: Path):
    (tmp_path / "text").write_bytes(b"a" * 1900 + b"b" * 100)
    found = train(tiny(data=str(tmp_path / "text"), lr=3e-2, steps=20))
    assert found["loss"][-1] < 1 and found["held_out_loss"][-1] > found["held_out_loss"][0]


def test_a_batch_that_processes_cannot_share_is_named():
    with pytest.raises(ValueError, match="batch=4: 4 sequences at a time; expected a multiple of 3 processes"):
        training._parts(tiny(), 0, 3)


def test_a_run_that_diverges_says_where(monkeypatch: pytest.MonkeyPatch):
    run = tiny()

    def broken(*args):
        lab = set_up(*args)
        with torch.no_grad():
            lab.model.layers[0].attention.query.weight[0, 0] = torch.nan
        return lab

    monkeypatch.setattr(training, "set_up", broken)
    with pytest.raises(Diverged, match=r"step 0: loss nan; gradients that are not finite: embedding.weight, .* more"):
        train(run)


@pytest.mark.parametrize(
    ("family", "design"),
    [("llama", "HG+DNP+OR"), ("moe", "HG+DNP+OR"), ("moe", "none"), ("hybrid", "DP+ER"), ("gemma", "HG+DNP+OR")],
)
def test_designs_train_on_every_kind_of_model(family, design):
    run = tiny(family, design=design)
    found = train(run)
    assert np.isfinite(found["held_out_loss"]).all()
    assert found["held_out_loss"][-1] < found["held_out_loss"][0]
    changed = np.abs(found["rms"][-1] - found["rms"][0])
    assert (changed > 0).mean() > 0.9


def test_without_learned_scales_none_is_trained():
    lab = set_up(tiny(design="none"))
    assert not any("norm" in name for names in (g["param_names"] for g in lab.groups) for name in names)
    assert any("norm" in name for names in (g["param_names"] for g in set_up(tiny()).groups) for name in names)


def test_multipliers_can_be_left_out_of_clipping():
    run = tiny(multipliers="row+column")
    inside, outside = set_up(run), set_up(replace(run, clip_multipliers=False))
    assert len(inside.clipped()) - len(outside.clipped()) == len(multipliers(inside.model)) > 0


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_is_what_torch_does_by_hand(momentum):
    run = tiny(optimizer="momentum" if momentum else "sgd", lr=0.1, weight_decay=0.5, steps=4, warmup=0, clip=0)
    source, model = find_source(run.data), Decoder(run.architecture, run.seed)
    matrices = [p for p in model.parameters() if p.ndim > 1]
    scales = [p for p in model.parameters() if p.ndim == 1]
    optimizer = torch.optim.SGD([{"params": matrices + scales, "weight_decay": 0.5}], lr=run.lr, momentum=momentum)
    for step, factor in enumerate(SCHEDULES["cosine"](run.steps, 0)):
        optimizer.param_groups[0]["lr"] = run.lr * factor
        model.loss(*source.batch(run.seed, step, run.batch, run.length))[1].backward()
        optimizer.step()
        optimizer.zero_grad()
    rms = [float(p.detach().square().mean().sqrt()) for p in model.parameters()]
    assert np.allclose(train(run)["rms"][-1], rms, rtol=1e-4)


def test_scales_and_chosen_matrices_have_their_own_rates_and_decay():
    run = tiny(
        scale_lr=5.0, rescaled="feed_forward", rescale=4.0, weight_decay=0.5, multipliers="row", optimizer="muon"
    )
    lab = set_up(run)
    groups = [g for o in lab.optimizers for g in o.param_groups]
    found = {name: (g["lr_factor"], g["weight_decay"]) for g in groups for name in g["param_names"]}
    assert set(found) == {n for n, p in lab.model.named_parameters() if p.requires_grad}
    for name, pair in found.items():
        vector = dict(lab.model.named_parameters())[name].ndim == 1
        scale = 2e-3 if name in multipliers(lab.model) else 0.5
        assert pair == ((5.0, scale) if vector else (4.0, 0.125) if "feed_forward" in name else (1.0, 0.5)), name


def test_multipliers_stand_where_they_are_asked_for_and_start_like_mup():
    run = tiny(multipliers="scalar", multipliers_on="up|head", multiplier_start="mup", lr=2e-2, weight_decay=0.5)
    lab = set_up(run)
    named = dict(lab.model.named_parameters())
    found = {m.parameter: float(named[n].detach()) * np.sqrt(0.02) for n, m in multipliers(lab.model).items()}
    assert {"head.weight", "layers.0.feed_forward.up.weight"} <= set(found) and len(found) == 3
    assert found["head.weight"] == pytest.approx(1 / 16) and found["layers.1.feed_forward.up.weight"] == pytest.approx(
        1 / 4
    )
    with pytest.raises(ValueError, match="multiplier_start='mup' with a row multiplier: expected scalar ones only"):
        set_up(replace(run, multipliers="row"))


def test_no_loss_is_below_the_entropy_of_its_source():
    found = train(tiny(steps=150, lr=1e-2, batch=16, held_out=8))
    assert float(found.attrs["entropy"]) < found.attrs["least_loss"] < found["held_out_loss"][-1] < 0.8 * np.log(8)


def test_the_wider_baseline_has_as_many_parameters_and_no_fewer():
    run = tiny(design="HG+DP", multipliers="row")
    wide = widened(run)
    trained = sum(p.numel() for p in set_up(run).model.parameters() if p.requires_grad)
    narrower = replace(wide.architecture, hidden=wide.architecture.hidden - 1)
    assert count_parameters(narrower) < trained <= count_parameters(wide.architecture)
    assert (wide.design, wide.multipliers) == ("standard", "none")


def test_provenance_and_run_are_stored():
    run = tiny()
    found = train(run)
    stored = json.loads(found.attrs["settings"])
    assert stored["seed"] == 0 and stored["architecture"]["width"] == 16
    assert {"commit", "torch", "cores"} <= set(json.loads(found.attrs["provenance"]))
    assert found.attrs["trained_parameters"] == count_parameters(run.architecture)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": "adam"}, "optimizer='adam': expected one of adamw, muon, sgd, momentum"),
        ({"rescale": 0}, "rescale=0: expected > 0"),
        ({"rescaled": "("}, r"rescaled='\(': expected a regular expression \(missing \)"),
        ({"multipliers_on": "("}, r"multipliers_on='\(': expected a regular expression"),
        ({"multiplier_start": "mup", "weight_decay": 0}, "weight_decay=0: expected > 0 with multiplier_start='mup'"),
        ({"measures": ("size",)}, "measures='size': expected names among abm, alignment"),
        ({"multiplier_start": "zero"}, "multiplier_start='zero': expected one of ones, mup"),
        ({"steps": 0}, "steps=0: expected >= 1"),
        ({"lr": 0}, "lr=0: expected > 0"),
        ({"weight_decay": -1}, "weight_decay=-1: expected >= 0"),
        ({"betas": (1.0, 0.9)}, r"betas=\(1.0, 0.9\): expected two numbers"),
        ({"batch": 4, "accumulate": 3}, "accumulate=3: expected a divisor of batch=4"),
        ({"warmup": 9}, "warmup=9: expected from 0 to steps=8"),
        ({"learning_rate": 1}, "learning_rate=1: no such setting"),
        ({"lr": float("inf")}, "lr=inf: expected a finite number"),
        ({"lr": "fast"}, "lr='fast': expected a number"),
        ({"steps": 4.0}, "steps=4.0: expected an integer"),
        ({"steps": True}, "steps=True: expected an integer"),
        ({"compile": 1}, "compile=1: expected true or false"),
        ({"betas": 0.9}, "betas=0.9: expected a list"),
        ({"betas": ("a", 0.9)}, r"betas=\('a', 0.9\): expected two numbers"),
        ({"data": 4}, "data=4: expected a name or a path"),
        ({"seed": 2**63}, "seed=9223372036854775808: expected"),
    ],
)
def test_settings_that_make_no_sense_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        tiny(**settings)


def test_a_short_run_warms_up_for_half_of_it_at_most():
    assert make_run("llama", data="markov:8", steps=4).warmup == 2
    assert make_run("llama", data="markov:8", steps=400).warmup == 20
    assert make_run("llama", data="markov:8", steps=4, warmup=3).warmup == 3


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"norm": "max"}, "norm='max': expected one of rms, layer"),
        ({"vocabulary": 4}, "vocabulary=4: expected at least the 8 tokens of data='markov:8'"),
        ({"width": "wide"}, "width='wide': expected an integer"),
        ({"kv_heads": -1}, "kv_heads=-1: expected >= 0"),
        ({"epsilon": float("nan")}, "epsilon=nan: expected a finite number"),
        ({"rope_base": 0}, "rope_base=0: expected > 0"),
        ({"tied": "yes"}, "tied='yes': expected true or false"),
    ],
)
def test_sizes_that_make_no_sense_are_named(sizes, message):
    with pytest.raises(ValueError, match=message):
        make_run("llama", sizes, data="markov:8")


@pytest.mark.parametrize("settings", [{"multipliers": "row+column"}, {"design": "HG+OR"}, {}])
def test_the_table_shows_the_rms_of_matrices_alone(tmp_path: Path, settings):
    run = tiny(sizes={"width": 32, "hidden": 48}, steps=1, warmup=0, lr=1e-6, **settings)
    cells = course_table(train(run, tmp_path)).columns[-1]._cells
    assert {round(float(text), 3) for text in cells} == {0.02}


def test_a_rescaling_of_nothing_is_refused():
    with pytest.raises(ValueError, match="rescaled='norm': expected to match the name of a matrix"):
        set_up(tiny(rescaled="norm", rescale=2.0))


def test_other_text_under_the_same_path_is_another_run(tmp_path: Path):
    keys = []
    for text in (b"a" * 2000, b"b" * 2000):
        (tmp_path / "text").write_bytes(text)
        find_source.cache_clear()
        keys.append(tiny(data=str(tmp_path / "text")).key)
    assert keys[0] != keys[1]


def test_a_checkpoint_of_other_text_is_not_gone_on_from(tmp_path: Path, caplog, monkeypatch: pytest.MonkeyPatch):
    train(tiny(), tmp_path, stop_after=3)
    monkeypatch.setattr(find_source("markov:8"), "fingerprint", "other")
    assert same(train(tiny()), train(tiny(), tmp_path))
    assert "(data=markov:8 is another text now)" in caplog.text and "training starts over" in caplog.text


def test_one_of_many_processes_speaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    sizes = [f"{k}={v}" for k, v in SIZES.items()]
    settings = ["data=markov:8", "steps=2", "warmup=0", "batch=2", "length=8", "held_out=1", "evaluations=1"]
    options = ["llama", "--runs", str(tmp_path), *(x for text in (*sizes, *settings) for x in ("--set", text))]
    shown = CliRunner().invoke(train_command, options).output
    assert "held-out loss" in shown and "the least possible loss is" in shown
    monkeypatch.setenv("RANK", "1")
    assert CliRunner().invoke(train_command, options).output == ""


def test_a_setting_that_is_given_twice_is_refused():
    with pytest.raises(ValueError, match="steps is given twice"):
        parse_settings(["steps=5", "lr=1", "steps=6"])
