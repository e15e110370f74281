import resource

import pytest
import torch
from torch import nn

from simulations.lm.run import make_run, set_up
from simulations.models.outline import check_memory, memory, outline
from simulations.models.targets import find_subject


def test_an_outline_has_shapes_and_takes_no_memory():
    model = outline(lambda: nn.Linear(10**6, 10**6))
    assert model.weight.is_meta and model.weight.shape == (10**6, 10**6)


def test_a_model_without_end_is_stopped_and_later_ones_are_not_counted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("simulations.models.outline.MODULES", 10)
    endless = iter(lambda: nn.Linear(1, 1), None)
    with pytest.raises(ValueError, match="more than 10 modules; expected fewer layers or experts"):
        outline(lambda: nn.Sequential(*(nn.Sequential(m) for m in endless)))
    assert len(nn.Sequential(*(nn.ReLU() for _ in range(20)))) == 20


def test_memory_is_that_of_the_parameters_precision_times_copies(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("simulations.models.outline.memory", lambda: 8 * 2**30)
    halves = nn.Linear(2**15, 2**16, bias=False, device="meta", dtype=torch.bfloat16)  # 4 GiB
    check_memory(halves, 2, "less")
    with pytest.raises(ValueError, match="2,147,483,648 parameters need 12 GiB of memory, of 8 GiB; expected less"):
        check_memory(halves, 3, "less")


def test_a_limit_of_the_process_counts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (2**30, 2**30))
    assert memory() == 2**30


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"vocab_size": 10**9, "hidden_size": 10**6}, "need .* GiB of memory"),
        ({"num_hidden_layers": 10**9}, "more than 1,000 modules"),
    ],
)
def test_an_audit_of_a_slip_of_the_pen_is_refused_before_memory_is_gone(sizes, message, monkeypatch):
    monkeypatch.setattr("simulations.models.outline.MODULES", 1000)
    with pytest.raises(ValueError, match=message):
        find_subject("llama", sizes="given", overrides=sizes)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"width": 10**6, "heads": 1}, "need .* GiB of memory"),
        ({"layers": 10**9}, "more than 1,000 modules"),
        ({"hidden": 10**30}, "no model of these sizes"),
    ],
)
def test_a_run_of_a_slip_of_the_pen_is_refused_before_memory_is_gone(sizes, message, monkeypatch):
    monkeypatch.setattr("simulations.models.outline.MODULES", 1000)
    with pytest.raises(ValueError, match=message):
        set_up(make_run("llama", sizes, data="markov:4"))
