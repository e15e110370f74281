"""Roles and consumers of norms in small hand-written models, each also checked by rescaling the norm numerically."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from simulations.models.audit import audit
from simulations.models.decay import iwd_rule
from simulations.models.folding import move_scale, refusal
from simulations.models.running import copied
from simulations.models.trace import trace

D = 6


class RMSNorm(nn.Module):
    def __init__(self, d=D, offset=0.0, bias=False):
        super().__init__()
        self.offset = offset
        self.gamma = nn.Parameter(torch.rand(d) + 0.5)
        self.beta = nn.Parameter(torch.randn(d)) if bias else None

    def forward(self, x):
        y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * (self.offset + self.gamma)
        return y if self.beta is None else y + self.beta


class Model(nn.Module):
    """A norm, parameters a, b (matrices d × d) and experts, and a body that says what becomes of the norm's output."""

    def __init__(self, body, norm=None):
        super().__init__()
        self.norm = norm or RMSNorm()
        self.a, self.b = nn.Linear(D, D, bias=False), nn.Linear(D, D, bias=False)
        self.experts = nn.Parameter(torch.randn(3, 2 * D, D))
        self.vector = nn.Parameter(torch.randn(D))
        self.embed = nn.Embedding(9, D)
        self.body = body

    def forward(self, x):
        return self.body(self, x, self.norm(x))


def loop_over_experts(m, x, y):
    weight, route = m.a(y)[..., :3].max(-1)
    out = torch.zeros(*x.shape[:-1], 2 * D, dtype=x.dtype)
    for e in range(3):
        index = torch.where(route == e)
        out[index] = F.linear(y[index], m.experts[e])
    return out * weight[..., None]


def gathered_experts(m, x, y):
    weight, route = m.a(y).flatten(0, 1)[:, :3].max(-1)
    return torch.bmm(y.reshape(-1, 1, D), m.experts[route].transpose(1, 2)) * weight[:, None, None]


def rotate(y):
    half = torch.cat([-y[..., D // 2 :], y[..., : D // 2]], -1)
    return y * 0.6 + half * 0.8


def fused_and_split(m, x, y):
    q, k = m.a(y).chunk(2, -1)
    return (q.tanh() * k).sum(-1)


# body, role, consumers (parameter: axis), others
INPUT = {
    "one linear": (lambda m, x, y: m.a(y), {"a.weight": 1}),
    "fused": (fused_and_split, {"a.weight": 1}),
    "two branches": (lambda m, x, y: m.a(y).tanh() * m.b(y), {"a.weight": 1, "b.weight": 1}),
    "input times matrix": (lambda m, x, y: y @ m.a.weight, {"a.weight": 0}),
    "matrix times column": (lambda m, x, y: m.a.weight @ y.transpose(-1, -2), {"a.weight": 1}),
    "matrix times sequence": (lambda m, x, y: m.a.weight @ y[0].T, {"a.weight": 1}),
    "einsum": (lambda m, x, y: torch.einsum("bti,oi->bto", y, m.a.weight), {"a.weight": 1}),
    "looped experts": (loop_over_experts, {"a.weight": 1, "experts": 2}),
    "gathered experts": (gathered_experts, {"a.weight": 1, "experts": 2}),
    "one expert of three": (lambda m, x, y: y @ m.experts[1].T, {"experts": 2}),
    "constant multiple": (lambda m, x, y: m.a(-2.5 * y / 3), {"a.weight": 1}),
    "other activation in between": (lambda m, x, y: m.a(y * x.sigmoid()), {"a.weight": 1}),
    "token shift": (lambda m, x, y: m.a(y + 0.5 * y.roll(1, 1)), {"a.weight": 1}),
    "token shift with zeros": (lambda m, x, y: m.a(0.3 * y + 0.7 * F.pad(y, (0, 0, 1, -1))), {"a.weight": 1}),
    "padded with nothing": (lambda m, x, y: m.a(F.pad(y, (0, 0, 0, 0))), {"a.weight": 1}),
    "windows padded with zeros": (lambda m, x, y: m.a(F.pad(y, (0, 0, 0, 3)).unflatten(1, (2, 4))), {"a.weight": 1}),
    "gated by itself, then a matrix": (lambda m, x, y: m.b(m.a(y) * y), {"a.weight": 1, "b.weight": 1}),
    "layer with a bias": (lambda m, x, y: F.linear(y, m.a.weight, m.vector), {"a.weight": 1}),
    "mean over positions": (lambda m, x, y: m.a(y.mean(1)) + m.b(y.mean((0, 1), True)), {"a.weight": 1, "b.weight": 1}),
    "sum over positions": (lambda m, x, y: m.a(y.sum(1)), {"a.weight": 1}),
    "average of neighbours": (lambda m, x, y: m.a(F.avg_pool1d(y.mT, 2).mT), {"a.weight": 1}),
    "average of neighbours, padded": (lambda m, x, y: m.a(F.avg_pool1d(y.mT, 2, padding=1).mT), {"a.weight": 1}),
    "adaptive average": (lambda m, x, y: m.a(F.adaptive_avg_pool1d(y.mT, 3).mT), {"a.weight": 1}),
    "stretched": (lambda m, x, y: m.a(F.interpolate(y.mT, scale_factor=2, mode="linear").mT), {"a.weight": 1}),
}
OTHER = {
    "residual": (lambda m, x, y: y + m.a(y), "mixed", {"a.weight": 1}, {"add"}),
    "gated by itself": (lambda m, x, y: m.a(y) * y, "mixed", {"a.weight": 1}, {"returned"}),
    "returned": (lambda m, x, y: {"last": y}["last"], "output", {}, {"returned"}),
    "silu before the matrix": (lambda m, x, y: m.a(F.silu(y)), "output", {}, {"silu"}),
    "square": (lambda m, x, y: m.a(y * y), "output", {}, {"mul"}),
    "divisor": (lambda m, x, y: m.a(x / y), "output", {}, {"div"}),
    "added to the stream": (lambda m, x, y: m.a(x + y), "output", {}, {"add"}),
    "bias of a product": (lambda m, x, y: torch.addmm(y[0], x[0], m.a.weight), "output", {}, {"add"}),
    "attention scores": (lambda m, x, y: y @ m.a(x).transpose(-1, -2), "output", {}, {"bmm"}),
    "rotated, then scores": (lambda m, x, y: rotate(y) @ x.transpose(-1, -2), "output", {}, {"bmm"}),
    "rotated, then a matrix": (lambda m, x, y: m.a(rotate(y)), "output", {}, {"mm"}),
    "positions mixed": (lambda m, x, y: m.a(torch.where(x > 0, y, x)), "output", {}, {"where"}),
    "token shift with ones": (
        lambda m, x, y: m.a(0.3 * y + 0.7 * F.pad(y, (0, 0, 1, -1), value=1.0)),
        "output",
        {},
        {"add", "constant_pad_nd"},
    ),
    "mean over channels": (lambda m, x, y: m.a(x * y.mean(-1, True)), "output", {}, {"mean"}),
    "average of channels": (lambda m, x, y: F.avg_pool1d(y, 2), "output", {}, {"avg_pool2d"}),
    "channel shift with zeros": (lambda m, x, y: m.a(y + F.pad(y, (1, -1))), "output", {}, {"mm"}),
    "channels differ by row": (lambda m, x, y: m.a(torch.cat([y[:, :1], y[:, 1:].flip(-1)], 1)), "output", {}, {"mm"}),
}


def tokens():
    return torch.randn(2, 5, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def made(body, norm=None):
    torch.manual_seed(0)
    model = Model(body, norm).double().eval()
    return model


def rescaling_changes(model, norm, consumers):
    """Relative change of the output when each channel moves a factor from the scale into ``consumers``."""

    moved = copy.deepcopy(model)
    move_scale(moved, replace(norm, consumers=consumers), torch.linspace(2.0, 3.0, D, dtype=torch.float64))
    with torch.no_grad():
        before, after = model(tokens()), moved(tokens())
    return float((after - before).abs().max() / before.abs().max())


@pytest.mark.parametrize("case", INPUT)
def test_input_norms_have_the_right_consumers_and_rescale_freely(case):
    body, consumers = INPUT[case]
    model = made(body)
    (norm,) = trace(model, tokens()).norms
    assert (norm.role, norm.others, norm.absorbable) == ("input", (), True)
    assert {c.parameter: c.axis for c in norm.consumers} == consumers
    assert all(c.channels.tolist() == list(range(D)) for c in norm.consumers)
    assert rescaling_changes(model, norm, norm.consumers) < 1e-13
    assert rescaling_changes(model, norm, ()) > 1e-3
    for left_out in norm.consumers:
        rest = tuple(c for c in norm.consumers if c is not left_out)
        assert rescaling_changes(model, norm, rest) > 1e-3, left_out.parameter


@pytest.mark.parametrize("case", OTHER)
def test_other_norms_are_mixed_or_output_and_do_not_rescale_freely(case):
    body, role, consumers, others = OTHER[case]
    model = made(body)
    (norm,) = trace(model, tokens()).norms
    assert (norm.role, set(norm.others), norm.absorbable) == (role, others, False)
    assert {c.parameter: c.axis for c in norm.consumers} == consumers
    assert rescaling_changes(model, norm, norm.consumers) > 1e-3


ALL = list(range(D))
TWICE = [c for c in ALL for _ in range(2)]
# layer, axis, its channels, the axis of outputs, whether the norm's bias would add no constant
CONVOLUTIONS = {
    "pointwise": (lambda: nn.Conv1d(D, 4, 1), 1, ALL, 0, False),
    "with a stride": (lambda: nn.Conv1d(D, 4, 3, stride=2), 1, ALL, 0, False),
    "padded": (lambda: nn.Conv1d(D, 4, 3, padding=2), 1, ALL, 0, True),
    "padded by reflection": (lambda: nn.Conv1d(D, 4, 3, padding=1, padding_mode="reflect"), 1, ALL, 0, False),
    "by channel": (lambda: nn.Conv1d(D, 2 * D, 3, groups=D), 0, TWICE, 0, False),
    "by channel, padded": (lambda: nn.Conv1d(D, 2 * D, 3, padding=1, groups=D), 0, TWICE, 0, True),
    "transposed": (lambda: nn.ConvTranspose1d(D, 4, 3, stride=2), 0, ALL, 1, True),
    "transposed, in groups": (lambda: nn.ConvTranspose1d(D, 4, 1, groups=2, bias=False), 0, ALL, None, False),
}


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions_consume_a_norm(case):
    layer, axis, channels, output, altered = CONVOLUTIONS[case]
    model = made(lambda m, x, y: m.convolution(y.transpose(1, 2)))
    model.convolution = layer().double()
    traced = trace(model, tokens())
    (norm,) = traced.norms
    assert (norm.role, norm.others, norm.absorbable, norm.altered) == ("input", (), True, altered)
    (consumer,) = norm.consumers
    assert (consumer.parameter, consumer.axis, consumer.output) == ("convolution.weight", axis, output)
    assert consumer.channels.tolist() == channels and traced.uses["convolution.weight"].kind == "convolution"
    assert rescaling_changes(model, norm, norm.consumers) < 1e-13
    assert rescaling_changes(model, norm, ()) > 1e-3


@pytest.mark.parametrize(
    ("body", "others"),
    [
        (lambda m, x, y: F.conv1d(y, m.a.weight[:, :5, None]), {"convolution"}),
        (lambda m, x, y: F.conv1d(x.transpose(1, 2), y[0, :, :, None]), {"convolution"}),
        (lambda m, x, y: F.conv1d((y + x).transpose(1, 2), m.a.weight[..., None]), {"add"}),
    ],
)
def test_other_convolutions_do_not(body, others):
    """Over the positions as channels, with the output as a kernel, and after a sum."""
    model = made(body)
    (norm,) = trace(model, tokens()).norms
    assert (norm.role, {o.partition(" with")[0] for o in norm.others}) == ("output", others)
    assert rescaling_changes(model, norm, norm.consumers) > 1e-3


@pytest.mark.parametrize(
    "body",
    [
        lambda m, x, y: F.conv1d(y.mT, m.a.weight[:, :3, None], groups=2),
        lambda m, x, y: F.linear(y, m.a.weight @ m.a.weight.T),
        lambda m, x, y: F.linear(y, torch._weight_norm(m.a.weight, m.vector[:, None])),
    ],
)
def test_a_parameter_that_multiplies_along_no_one_axis_makes_an_input_norm(body):
    """By groups of channels, or made into another matrix first: weights can make up for a scale that shrinks."""
    traced = trace(model := made(body), tokens())
    (norm,) = traced.norms
    assert (norm.role, norm.indirect, norm.others, norm.absorbable) == ("input", ("a.weight",), (), False)
    assert iwd_rule(traced)["norm.gamma"] and "a.weight: it multiplies the output by groups" in refusal(model, norm)
    (row,) = audit(model, tokens()).rows
    assert (row.consumers, row.input_axes, row.fold_exact, row.requires) == (("a.weight",), {}, False, ())


def test_a_kernel_that_also_multiplies_something_else_is_not_absorbable():
    def body(m, x, y):
        return F.conv1d(y.transpose(1, 2), m.a.weight[..., None]) + F.conv1d(x.transpose(1, 2), m.a.weight[..., None])

    model = made(body)
    (norm,) = trace(model, tokens()).norms
    assert norm.consumers[0].also_used_by == ("convolution",) and not norm.absorbable


def test_sums_of_channels_are_told_from_channels_left_alone():
    """As a rotary embedding makes them; what is added to the output in the same channel is no such sum."""
    blended = {case: trace(made(body), tokens()).norms[0].blended for case, (body, *_) in OTHER.items()}
    rotated = {"rotated, then scores", "rotated, then a matrix", "channel shift with zeros"}
    assert {case for case, found in blended.items() if found} == rotated


def test_products_with_something_else_than_the_output_itself_are_told():
    altered = {case for case, (body, _) in INPUT.items() if trace(made(body), tokens()).norms[0].altered}
    scaled = {"constant multiple", "other activation in between", "gated by itself, then a matrix"}
    summed = {"token shift", "sum over positions", "average of neighbours, padded"}
    assert altered == {"token shift with zeros", "windows padded with zeros", *summed, *scaled}


@pytest.mark.parametrize(
    ("case", "routed"),
    [
        ("looped experts", {"experts"}),
        ("fused", set()),
        ("windows padded with zeros", set()),
        ("two branches", set()),
        ("matrix times column", set()),
    ],
)
def test_experts_are_told_by_the_rows_they_multiply(case, routed):
    body, _ = INPUT[case]
    (norm,) = trace(made(body), tokens()).norms
    assert {c.parameter for c in norm.consumers if c.routed} == routed


def test_channels_follow_a_permutation():
    model = made(lambda m, x, y: m.a(y.flip(-1)))
    (norm,) = trace(model, tokens()).norms
    assert norm.consumers[0].channels.tolist() == list(range(D))[::-1]
    assert rescaling_changes(model, norm, norm.consumers) < 1e-13


def test_channels_of_two_norms_meet_one_matrix():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.out = RMSNorm(2), RMSNorm(4), nn.Linear(D, 3)

        def forward(self, x):
            return self.out(torch.cat([self.second(x[..., 2:]), self.first(x[..., :2])], -1))

    model = Two().double().eval()
    second, first = trace(model, tokens()).norms
    assert (first.module, first.consumers[0].channels.tolist()) == ("first", [-1, -1, -1, -1, 0, 1])
    assert (second.module, second.consumers[0].channels.tolist()) == ("second", [0, 1, 2, 3, -1, -1])
    assert first.role == second.role == "input"


@pytest.mark.parametrize(
    ("norm", "offset", "bias"),
    [
        (RMSNorm(), 0.0, False),
        (RMSNorm(offset=1.0), 1.0, False),
        (RMSNorm(offset=0.25, bias=True), 0.25, True),
        (nn.LayerNorm(D), 0.0, True),
        (nn.LayerNorm(D, bias=False), 0.0, False),
    ],
)
def test_scale_offset_and_bias_are_probed(norm, offset, bias):
    model = made(lambda m, x, y: m.a(y), norm)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    (found,) = trace(model, tokens()).norms
    assert found.offset == pytest.approx(offset, abs=1e-6) and (found.bias is not None) is bias
    assert found.scale in ("norm.gamma", "norm.weight")
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert rescaling_changes(model, found, found.consumers) < 1e-13


def test_a_norm_that_joins_the_heads_it_normalised_is_one():
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.gamma = nn.Parameter(torch.rand(D) + 0.5)

        def forward(self, x):
            return F.rms_norm(x, x.shape[-1:]).flatten(-2) * self.gamma

    class Joined(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.out = Heads(), nn.Linear(D, 3)

        def forward(self, x):
            return self.out(self.norm(x.unflatten(-1, (2, D // 2))))

    model = Joined().double().eval()
    (norm,) = trace(model, tokens()).norms
    assert (norm.scale, norm.role, norm.consumers[0].parameter) == ("norm.gamma", "input", "out.weight")
    assert rescaling_changes(model, norm, norm.consumers) < 1e-13


def test_a_norm_whose_scale_is_0_is_one():
    model = made(lambda m, x, y: m.a(y), nn.LayerNorm(D))
    with torch.no_grad():
        model.norm.weight.zero_()
    (found,) = trace(model, tokens()).norms
    assert (found.scale, found.bias, found.offset, found.role) == ("norm.weight", "norm.bias", 0.0, "input")
    assert not model.norm.weight.any() and not model.norm.bias.any()


def test_a_norm_without_scale_has_no_role():
    model = made(lambda m, x, y: m.a(y), nn.LayerNorm(D, elementwise_affine=False))
    (norm,) = trace(model, tokens()).norms
    assert (norm.role, norm.scale, norm.absorbable) == ("none", None, False)
    assert [c.parameter for c in norm.consumers] == ["a.weight"]


class Positions(nn.Module):
    """Like a position embedding: of its input, only the shape matters."""

    def forward(self, x):
        return torch.zeros_like(x) + torch.arange(D)


@pytest.mark.parametrize(
    "module", [Positions(), nn.Tanh(), nn.Sigmoid(), nn.Identity(), nn.GELU(), nn.Linear(D, D), nn.Softmax(-1)]
)
def test_modules_that_do_not_normalise_are_no_norms(module):
    model = made(lambda m, x, y: m.a(y), module)
    assert trace(model, tokens()).norms == ()


def test_a_consumer_with_another_use_is_not_absorbable():
    model = made(lambda m, x, y: F.linear(y + 0 * y, m.embed.weight) + m.embed(torch.zeros(1, dtype=int)).sum())
    (norm,) = trace(model, tokens()).norms
    assert norm.role == "input" and not norm.absorbable
    assert norm.consumers[0].also_used_by == ("embedding",)
    assert rescaling_changes(model, norm, norm.consumers) > 1e-3


def test_a_matrix_that_also_multiplies_something_else_is_not_absorbable():
    model = made(lambda m, x, y: m.a(y) + m.a(x))
    (norm,) = trace(model, tokens()).norms
    assert norm.role == "input" and norm.consumers[0].also_used_by == ("mm",) and not norm.absorbable


def test_a_parameter_that_meets_two_channels_is_no_consumer_alone():
    model = made(lambda m, x, y: m.a(y) + m.a(y.flip(-1)))
    (norm,) = trace(model, tokens()).norms
    assert not norm.absorbable and rescaling_changes(model, norm, norm.consumers) > 1e-3


def test_a_norm_read_by_a_norm():
    class Chain(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.out = RMSNorm(), RMSNorm(), nn.Linear(D, 3)

        def forward(self, x):
            return self.out(self.second(self.first(x)))

    model = Chain().double().eval()
    first, second = trace(model, tokens()).norms
    assert (first.role, first.others) == ("output", ("norm second",)) and second.role == "input"


def test_two_norms_added_up_are_outputs():
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.out = RMSNorm(), RMSNorm(), nn.Linear(D, 3)

        def forward(self, x):
            return self.out(self.first(x) + self.second(x))

    model = Sum().double().eval()
    assert [(n.role, n.others) for n in trace(model, tokens()).norms] == [("output", ("add",))] * 2


def test_parameters_the_pass_does_not_read_are_named():
    model = made(lambda m, x, y: m.a(y) + torch.zeros_like(m.b.weight).sum())
    assert set(trace(model, tokens()).unread) == {"b.weight", "experts", "vector", "embed.weight"}


def test_an_expert_that_no_row_comes_to_is_not_read():
    model = made(lambda m, x, y: m.a(y).sum() + m.b(y.flatten(0, 1)[:0]).sum())
    traced = trace(model, tokens())
    assert [c.parameter for c in traced.norms[0].consumers] == ["a.weight"] and traced.norms[0].role == "input"
    assert "b.weight" in traced.unread


def test_what_is_added_to_a_product_is_no_matrix():
    """Such as the biases of blocks or experts, one row for each."""
    model = made(lambda m, x, y: torch.addmm(m.b.weight, y.flatten(0, 1)[:D], m.a.weight.T))
    uses = trace(model, tokens()).uses
    assert [(uses[n].kind, uses[n].operations) for n in ("a.weight", "b.weight")] == [
        ("matrix", ("addmm",)),
        ("vector", ("add",)),
    ]
    assert not iwd_rule(trace(model, tokens()))["b.weight"]


def test_a_model_in_training_is_traced_in_evaluation_mode_and_given_back():
    model = made(lambda m, x, y: m.a(F.dropout(y, 0.5, m.training)))
    model.train()
    model.b.eval()
    (norm,) = trace(model, tokens()).norms
    assert norm.role == "input"
    assert [m.training for m in (model, model.a, model.b)] == [True, True, False]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_low_precision_hides_no_norm(dtype):
    model = made(lambda m, x, y: m.a(y), RMSNorm(offset=1.0, bias=True)).to(dtype)
    (norm,) = trace(model, tokens().to(dtype)).norms
    assert (norm.role, norm.scale, norm.bias, norm.offset) == ("input", "norm.gamma", "norm.beta", 1.0)


def test_uses_of_parameters_are_told_by_what_is_done_with_them():
    def body(m, x, y):
        table = m.embed(torch.tensor([0, 1])).sum()
        return (m.b.weight @ m.a(y * m.vector.exp()).transpose(-1, -2)).transpose(-1, -2) * 2 + table

    uses = trace(made(body), tokens()).uses
    assert {name: use.kind for name, use in uses.items()} == {
        "norm.gamma": "scale",
        "a.weight": "matrix",
        "b.weight": "matrix",
        "vector": "vector",
        "embed.weight": "embedding",
        "experts": "unread",
    }
    assert uses["a.weight"].input_axis == uses["b.weight"].input_axis == 1
    assert {name for name, use in uses.items() if use.returned} == {"b.weight"}


def test_input_axes_of_matrices_that_no_norm_feeds():
    def body(m, x, y):
        stacked = torch.bmm(x.flatten(0, 1)[None].expand(3, -1, -1), m.experts.transpose(1, 2))
        return x @ m.a.weight + F.linear(x, m.b.weight) + stacked.sum()

    uses = trace(made(body), tokens()).uses
    assert [uses[name].input_axis for name in ("a.weight", "b.weight", "experts")] == [0, 1, 2]


def test_a_matrix_with_multipliers_is_still_that_matrix():
    model = made(lambda m, x, y: F.linear(y, m.vector[:, None] * m.a.weight * m.embed.weight[0]))
    found = trace(model, tokens())
    assert [c.parameter for c in found.norms[0].consumers] == ["a.weight"]
    kinds = {name: use.kind for name, use in found.uses.items()}
    assert (kinds["a.weight"], kinds["vector"], kinds["embed.weight"]) == ("matrix", "vector", "vector")


class Exponential(nn.Module):
    def forward(self, logarithm):
        return logarithm.exp()


class OnePlus(nn.Module):
    def forward(self, w):
        return 1 + w


@pytest.mark.parametrize(("made_by", "effective", "folds"), [(Exponential, "f(w)", False), (OnePlus, "1+w", True)])
def test_a_norm_that_others_have_parametrized_is_seen_as_a_function_of_the_original(made_by, effective, folds):
    model = made(lambda m, x, y: m.a(y), nn.LayerNorm(D))
    nn.utils.parametrize.register_parametrization(model.norm, "weight", made_by())
    (norm,) = trace(model, tokens()).norms
    scale = "norm.parametrizations.weight.original"
    assert (norm.module, norm.scale, norm.bias, norm.role) == ("norm", scale, "norm.bias", "input")
    assert [(r.effective, r.fold_exact) for r in audit(model, tokens()).rows] == [(effective, folds), ("bias", folds)]
    assert nn.utils.parametrize.is_parametrized(model.norm) and iwd_rule(trace(model, tokens()))[scale]
    if folds:
        assert rescaling_changes(model, norm, norm.consumers) < 1e-13


def test_norms_that_share_a_matrix_cannot_be_absorbed_one_by_one():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.a = RMSNorm(), RMSNorm(), nn.Linear(D, D)

        def forward(self, x):
            return self.a(self.second(self.a(self.first(x)).tanh()))

    first, second = trace(Shared().double(), tokens()).norms
    assert first.role == second.role == "input" and not first.absorbable and not second.absorbable
    assert first.consumers[0].also_used_by == ("norm second",)


class TwoPasses(nn.Module):
    """Two blocks, and norms and matrices of the second are those of the first, but for one matrix each."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([RMSNorm(bias=True), RMSNorm(bias=True)])
        self.shared = nn.ModuleList([nn.Linear(D, D), nn.Linear(D, D)])
        self.own = nn.ModuleList([nn.Linear(D, D), nn.Linear(D, D)])
        self.norms[1].gamma, self.norms[1].beta = self.norms[0].gamma, self.norms[0].beta
        self.shared[1].weight, self.shared[1].bias = self.shared[0].weight, self.shared[0].bias

    def forward(self, x):
        for norm, shared, own in zip(self.norms, self.shared, self.own, strict=True):
            y = norm(x)
            x = x + shared(y).tanh() * own(y)
        return x


def test_norms_that_share_their_parameters_are_one():
    torch.manual_seed(0)
    model = TwoPasses().double()
    (norm,) = trace(model, tokens()).norms
    assert norm.modules == ("norms.0", "norms.1")
    assert {c.parameter for c in norm.consumers} == {"shared.0.weight", "own.0.weight", "own.1.weight"}
    assert norm.absorbable
    assert rescaling_changes(model, norm, norm.consumers) < 1e-13
    assert rescaling_changes(model, norm, norm.consumers[1:]) > 1e-3
    model.norms[1].beta = nn.Parameter(torch.randn(D, dtype=torch.float64))
    one, two = trace(model, tokens()).norms
    assert (one.modules, two.modules) == (("norms.0",), ("norms.1",))
    assert not one.absorbable and not two.absorbable


def test_a_model_that_does_not_run_on_the_example_is_named():
    model = made(lambda m, x, y: m.a(y))
    with pytest.raises(ValueError, match=r"example: Model does not run on it: RuntimeError"):
        trace(model, tokens()[..., :3])
    with pytest.raises(ValueError, match=r"example=None: Model is no language model of transformers"):
        trace(model)


class ChannelsFirst(RMSNorm):
    """Normalises over the second axis of ``(batch, D, D)``, whose last axis is as long."""

    def forward(self, x):
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


@pytest.mark.parametrize("norm", [nn.GroupNorm(2, D), nn.InstanceNorm1d(D, affine=True), ChannelsFirst(bias=True)])
def test_channels_may_run_along_another_axis_than_the_last(norm):
    """Also where the axes are as long as one another, so that shapes do not tell them apart."""
    x = torch.randn(2, D, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (across,) = trace(made(lambda m, x, y: m.a(y), norm), x).norms
    assert (across.role, across.consumers, across.others) == ("output", (), ("mm",))
    model = made(lambda m, x, y: m.a(y.transpose(1, 2)), norm)
    (along,) = trace(model, x).norms
    assert along.role == "input" and along.consumers[0].channels.tolist() == list(range(D))
    with torch.no_grad():
        before = model(x)
        move_scale(model, along, torch.linspace(2.0, 3.0, D, dtype=torch.float64))
        assert float((model(x) - before).abs().max()) < 1e-13


@pytest.mark.parametrize("shape", [(1, D), (1, 1, D), (1,), ()])
def test_a_scale_may_have_any_shape_that_multiplies_the_output(shape):
    norm = RMSNorm()
    norm.gamma = nn.Parameter(torch.rand(shape) + 0.5)
    model = made(lambda m, x, y: m.a(y), norm)
    (found,) = trace(model, tokens()).norms
    assert found.absorbable
    factor = torch.rand(shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64) + 2
    moved = copy.deepcopy(model)
    move_scale(moved, found, factor)
    with torch.no_grad():
        assert float((moved(tokens()) - model(tokens())).abs().max()) < 1e-13


class FunctionOfW(RMSNorm):
    def __init__(self, f, bias=False):
        super().__init__(bias=bias)
        self.f = f

    def forward(self, x):
        y = F.rms_norm(x, (D,)) * self.f(self.gamma)
        return y if self.beta is None else y + self.beta


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    "f",
    [
        torch.exp,
        torch.square,
        F.softplus,
        torch.abs,
        lambda w: 1 + w.tanh(),
        lambda w: w.softmax(-1),
        lambda w: torch.linspace(0.5, 1.5, D, dtype=w.dtype) + w,
    ],
)
def test_another_function_of_the_scale_is_said_and_leaves_the_other_norms_alone(f, bias):
    model = made(lambda m, x, y: m.a(m.other(m.b(y))), FunctionOfW(f, bias))
    model.other = RMSNorm(offset=1.0).double()
    norm, other = trace(model, tokens()).norms
    assert (norm.scale, norm.bias, norm.role) == ("norm.gamma", "norm.beta" if bias else None, "input")
    assert [c.parameter for c in norm.consumers] == ["b.weight"] and not norm.absorbable
    assert refusal(model, norm) == (
        "its effective scale is a function of norm.gamma, but neither w nor a number plus w: it is not folded here"
    )
    assert (other.offset, other.absorbable, other.unclear) == (1.0, True, "")
    with pytest.raises(ValueError, match=r"norm: its effective scale is a function of norm\.gamma"):
        move_scale(model, norm, torch.ones(D))


class Cosine(nn.Module):
    """Normalises what it is given and its own rows, as the last layer of some classifiers."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(D, D))

    def forward(self, x):
        return F.linear(F.normalize(x, dim=-1), F.normalize(self.weight, dim=-1))


class TwoScales(RMSNorm):
    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return super().forward(x) * self.temperature


@pytest.mark.parametrize(
    ("norm", "reason"),
    [
        (Cosine(), "its output is not a number plus norm.weight, channel by channel"),
        (TwoScales(), "its parameters are norm.gamma, norm.temperature, and not one scale and one bias"),
    ],
)
def test_a_module_that_normalises_and_has_other_parameters_has_no_role(norm, reason):
    model = made(lambda m, x, y: m.a(m.other(m.b(y))), norm)
    model.other = RMSNorm().double()
    traced = trace(model, tokens())
    norm, other = traced.norms
    assert (norm.role, norm.scale, norm.consumers, refusal(model, norm)) == ("none", None, (), reason)
    assert other.absorbable and [c.parameter for c in other.consumers] == ["a.weight"]
    assert traced.uses.get("norm.weight", traced.uses["a.weight"]).kind == "matrix"


@dataclass
class Result:
    first: torch.Tensor
    rest: object


class Record(dict):
    pass


@pytest.mark.parametrize(
    "pack",
    [
        lambda a, y: Result(a, y),
        lambda a, y: Result(a, [Result(a, (y,))]),
        lambda a, y: Record(first=a, rest=y),
        lambda a, y: type("Plain", (), {"__init__": lambda self: vars(self).update(first=a, rest=y)})(),
    ],
)
def test_what_is_returned_is_found_in_containers_of_any_type(pack):
    model = made(lambda m, x, y: pack(m.a(y), y))
    found = trace(model, tokens())
    assert (found.norms[0].role, found.norms[0].others) == ("mixed", ("returned",))
    assert found.uses["a.weight"].returned


def test_a_scale_that_is_read_outside_of_its_norm_is_not_absorbable():
    model = made(lambda m, x, y: m.a(y) + m.b(F.rms_norm(x, (D,), m.norm.gamma)))
    (norm,) = trace(model, tokens()).norms
    assert norm.role == "input" and not norm.absorbable
    assert refusal(model, norm) == "its parameters are also used by mm"
    assert rescaling_changes(model, norm, norm.consumers) > 1e-3


def test_a_scale_of_two_norms_with_biases_of_their_own_is_absorbable_for_neither():
    model = made(lambda m, x, y: m.a(y) + m.b(m.other(x.exp())), nn.LayerNorm(D))
    model.other = nn.LayerNorm(D, dtype=torch.float64)
    model.other.weight = model.norm.weight
    first, second = trace(model, tokens()).norms
    assert first.scale == second.scale == "norm.weight" and not first.absorbable and not second.absorbable
    assert (first.shared, second.shared) == (("norm other",), ("norm norm",))


def test_integers_beside_channels_are_no_channels():
    def body(m, x, y):
        return m.a(torch.cat([y[..., 1:], torch.full((2, 5, 1), 3)], -1))

    (norm,) = trace(made(body), tokens()).norms
    assert norm.consumers[0].channels.tolist() == [1, 2, 3, 4, 5, -1]


class Binary(nn.Linear):
    def forward(self, x):
        w = self.weight
        return F.linear(x, w + (w.sign() * w.abs().mean() - w).detach())


class Merged(nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes, bias=False)
        self.down, self.up = nn.Parameter(torch.randn(2, D)), nn.Parameter(torch.randn(D, 2))

    def forward(self, x):
        return F.linear(x, self.weight + self.up @ self.down)


class Inference(nn.Linear):
    def forward(self, x):
        with torch.inference_mode():
            return super().forward(x)


class Looked(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.positions = nn.Parameter(torch.randn(9, D)), nn.Parameter(torch.randn(5, D))

    def forward(self, x):
        index = (x[..., 0] > 0).long()
        return (self.table[index] + self.positions[torch.arange(5)])[..., 1:]


def reparametrized(kind):
    return kind(nn.Linear(D, D, bias=False))


@pytest.mark.parametrize(
    ("layer", "kinds"),
    [
        (lambda: Binary(D, D, bias=False), {"matrix": ["weight"]}),
        (lambda: Merged(D, D), {"matrix": ["weight", "down", "up"]}),
        (lambda: Inference(D, D, bias=False), {"matrix": ["weight"]}),
        (
            lambda: reparametrized(nn.utils.parametrizations.weight_norm),
            {
                "vector": ["parametrizations.weight.original0"],
                "matrix": ["parametrizations.weight.original1"],
            },
        ),
        (
            lambda: reparametrized(nn.utils.parametrizations.spectral_norm),
            {"matrix": ["parametrizations.weight.original"]},
        ),
        (
            lambda: reparametrized(nn.utils.parametrizations.orthogonal),
            {"matrix": ["parametrizations.weight.original"]},
        ),
        (lambda: Looked(), {"embedding": ["table"], "vector": ["positions"]}),
    ],
)
def test_kinds_of_parameters_that_are_read_by_a_detour(layer, kinds):
    torch.manual_seed(0)
    model = nn.Sequential(layer()).double().eval()
    found: dict[str, list[str]] = {}
    for name, use in trace(model, tokens()).uses.items():
        found.setdefault(use.kind, []).append(name.removeprefix("0."))
    assert found == kinds


TABLES = {
    "added": lambda m, given: m.table,
    "cut": lambda m, given: m.table[:5],
    "looked up by an embedding": lambda m, given: F.embedding(torch.arange(5), m.table),
    "looked up by indices": lambda m, given: m.table[torch.arange(5)],
    "looked up where no padding is": lambda m, given: F.embedding((given >= 0).long().cumsum(1) - 1, m.table),
    "looked up by distance": lambda m, given: F.embedding((torch.arange(5)[:, None] - torch.arange(5)).abs(), m.table)[
        0
    ],
}


@pytest.mark.parametrize("case", TABLES)
def test_tables_of_positions_are_vectors_however_they_are_written(case):
    model = made(lambda m, x, y: m.a(y) + TABLES[case](m, x[..., 0].abs()))
    model.table = nn.Parameter(torch.randn(5, D, dtype=torch.float64))
    traced = trace(model, tokens())
    assert traced.uses["table"].kind == "vector" and not iwd_rule(traced)["table"]


@pytest.mark.parametrize("given", [torch.arange(10).reshape(2, 5) % 9, torch.tensor([[3, 1, 4, 1, 5]] * 2)])
@pytest.mark.parametrize("look", [lambda m, i: m.embed(i), lambda m, i: m.embed.weight[i]])
def test_tables_that_are_looked_up_by_what_is_given_are_embeddings(look, given):
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.norm, self.kinds = nn.Embedding(9, D), RMSNorm(), nn.Embedding(2, D)

        def forward(self, tokens):
            return self.norm(look(self, tokens) + self.kinds(torch.zeros(5, dtype=torch.int64)))

    uses = trace(Tokens(), given).uses
    assert (uses["embed.weight"].kind, uses["kinds.weight"].kind) == ("embedding", "embedding")


def test_matrices_in_fused_layers_are_matrices():
    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            self.bag = nn.EmbeddingBag(9, D)
            self.norm, self.recurrent = nn.RMSNorm(D), nn.LSTM(D, D, batch_first=True)
            layer = nn.TransformerEncoderLayer(D, 2, 12, norm_first=True, batch_first=True)
            self.encoder, self.bilinear = nn.TransformerEncoder(layer, 1, None, False), nn.Bilinear(D, D, 3)

        def forward(self, tokens):
            x = self.encoder(self.recurrent(self.norm(self.bag(tokens))[None])[0])
            return self.bilinear(x, x)

    found = trace(Layers().eval(), torch.arange(18).reshape(6, 3) % 9)
    kinds = {name: use.kind for name, use in found.uses.items() if len(use.shape) > 1}
    assert kinds.pop("bag.weight") == "embedding" and set(kinds.values()) == {"matrix"}
    consumers = {n.module: [c.parameter for c in n.consumers] for n in found.norms}
    assert consumers == {
        "norm": ["recurrent.weight_ih_l0"],
        "encoder.layers.0.norm1": ["encoder.layers.0.self_attn.in_proj_weight"],
        "encoder.layers.0.norm2": ["encoder.layers.0.linear1.weight"],
    }
    assert torch.backends.mha.get_fastpath_enabled() and torch.backends.mkldnn.enabled


def test_the_bits_of_a_parameter_may_be_viewed():
    model = made(lambda m, x, y: m.a(y) + m.vector.view(torch.int64).sum() * 0)
    assert trace(model, tokens()).norms[0].absorbable


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
def test_what_cannot_be_followed_copied_or_run_again_is_a_line():
    class Keeping(nn.Module):
        def forward(self, x):
            self.kept = nn.functional.normalize(x, dim=-1).requires_grad_() * 1
            return self.kept.detach()

    class Once(nn.Module):
        def forward(self, x):
            if hasattr(self, "done"):
                raise RuntimeError("only\nonce")
            self.done = True
            return x * 1

    class Failing(nn.Module):
        def forward(self, x):
            raise RuntimeError("two\nlines")

    scripted = torch.jit.script(nn.LayerNorm(D, dtype=torch.float64))
    with pytest.raises(ValueError, match="norm: a scripted or traced module cannot be followed; expected its source"):
        trace(made(lambda m, x, y: m.a(y), scripted), tokens())
    with pytest.raises(ValueError, match=r"norm: it cannot be run again in float64: RuntimeError: only once"):
        trace(made(lambda m, x, y: m.a(y), Once()), tokens())
    with pytest.raises(ValueError, match=r"does not run on it: RuntimeError: two lines"):
        trace(made(lambda m, x, y: m.a(y), Failing()), tokens())
    with torch.enable_grad():
        keeping = Keeping()
        keeping(torch.randn(2, D, requires_grad=True))
    with pytest.raises(ValueError, match=r"Keeping: it cannot be copied: RuntimeError: Only Tensors"):
        copied(keeping)
