"""The lab's decoder: the same logits as the models of `transformers` it is like, causality, experts, sizes."""

from __future__ import annotations

import pytest
import torch

from simulations.lm.architecture import FAMILIES, Architecture, architecture
from simulations.lm.mixer import scan
from simulations.lm.model import Decoder, Experts, count_parameters

WIDTH = 64  # a square, as Gemma's √width is rounded to float32
LENGTH = 70  # more than one chunk of the mixer


def small(family: str) -> Architecture:
    keys = 4 if family == "gpt2" else 2
    sizes = {"width": WIDTH, "layers": 2, "heads": 4, "kv_heads": keys, "hidden": 48, "vocabulary": 40, "length": 96}
    sizes["epsilon"] = 1e-3  # of no family's own
    return architecture(family, **sizes, **({"state": 8, "mixer_head_dim": 8} if family == "hybrid" else {}))


def tokens(a: Architecture, seed: int = 0, length: int = LENGTH) -> torch.Tensor:
    return torch.randint(0, a.vocabulary, (2, length), generator=torch.Generator().manual_seed(seed))


def perturbed(model: torch.nn.Module) -> torch.nn.Module:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=generator, dtype=p.dtype))
    return model


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_the_family_in_transformers(family):
    pytest.importorskip("transformers")
    from simulations.lm.twins import twin, weights_of
    from simulations.models.float64 import Float64

    a = small(family)
    other = perturbed(twin(family, a, experts_implementation="eager").double().eval())
    frequency = a.rope_base ** (-torch.arange(0, a.head_size, 2, dtype=torch.float64) / a.head_size)
    for name, buffer in other.named_buffers():
        if name.endswith("inv_freq"):  # stored in float32
            buffer.copy_(frequency)
    model = Decoder(a).double().eval()
    model.load_state_dict(weights_of(other))
    with torch.no_grad(), Float64():
        expected, found = other(input_ids=tokens(a), use_cache=False).logits, model(tokens(a))
    assert float((found - expected).abs().max() / expected.abs().max()) < 1e-13
    assert sum(p.numel() for p in other.parameters()) == count_parameters(a)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_token_sees_a_later_one(family):
    a = small(family)
    model = perturbed(Decoder(a).double()).eval()
    first, second = tokens(a), tokens(a)
    second[:, 40:] = tokens(a, seed=1)[:, 40:]
    with torch.no_grad():
        one, two = model(first), model(second)
    assert torch.allclose(one[:, :40], two[:, :40], rtol=0, atol=1e-12)
    assert not torch.allclose(one[:, 40:], two[:, 40:], atol=1e-3)


def test_the_scan_is_the_recurrence():
    generator = torch.Generator().manual_seed(0)
    u, b, c = (torch.randn(2, 150, 3, n, generator=generator, dtype=torch.float64) for n in (4, 5, 5))
    log_decay = -torch.rand(2, 150, 3, generator=generator, dtype=torch.float64)
    state, expected = torch.zeros(2, 3, 5, 4, dtype=torch.float64), []
    for t in range(150):
        state = log_decay[:, t, :, None, None].exp() * state + b[:, t, :, :, None] * u[:, t, :, None, :]
        expected.append((c[:, t, :, :, None] * state).sum(2))
    assert torch.allclose(scan(u, log_decay, b, c), torch.stack(expected, 1), atol=1e-12)


def test_balance_is_one_where_experts_share_evenly_and_their_number_where_one_gets_all():
    a = architecture("moe", width=4, heads=1, active=1)
    experts = Experts(a)
    torch.nn.init.ones_(experts.gate_up)
    torch.nn.init.ones_(experts.down)
    with torch.no_grad():
        experts.router.weight.copy_(1e-6 * torch.eye(4))
        assert experts(torch.eye(4)[None])[1].item() == pytest.approx(1.0, abs=1e-4)
        experts.router.weight.mul_(1e8)
        assert experts(torch.eye(4)[:1].expand(1, 8, 4))[1].item() == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"width": 0}, "width=0: expected >= 1"),
        ({"kv_heads": 3}, "kv_heads=3: expected a divisor of heads=4"),
        ({"heads": 5}, "heads=5: expected a divisor of width=64"),
        ({"head_dim": 5}, "head_dim=5: expected an even number"),
        ({"experts": 2, "active": 3}, "active=3: expected at most experts=2"),
        ({"state": 8, "mixer_groups": 3}, "mixer_groups=3: expected a divisor of mixer_heads=4"),
        ({"depth": 3}, "depth=3: no such size"),
    ],
)
def test_sizes_that_do_not_fit_are_named(sizes, message):
    with pytest.raises(ValueError, match=message):
        architecture("llama", **sizes)


def test_an_unknown_family_is_named():
    with pytest.raises(ValueError, match="family='bert': expected one of llama"):
        architecture("bert")
