"""Which multipliers of a network are redundant, found from its function alone.

Source: arXiv 2601.04890 (a norm's weight is a column multiplier of the next linear; up rows and down columns; v rows
and o columns; q and k rows).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from sympy import Eq, symbols
from torch import Tensor, nn

from scalevec_theory.claim import Claim, Counterexample, Evidence, Scope, Setting, measured
from scalevec_theory.proof import Lemma, Proof
from scalevec_theory.redundancy import Redundancies, Site, redundancies, verify

WIDTH, HEADS, HEAD, HIDDEN, TOKENS = 6, 2, 4, 5, 40
EXACT, NEEDED = 1e-9, 1e-3
"""Outputs may change by no more under a symmetry, and must change by more if one of its sites is left out."""

sigma, down, gate, up, p, v, out, q1, q2, k1, k2, c1, s1, c2, s2 = symbols(
    "σ D_ij a_j u_j p_t v_jt O_ij q_1 q_2 k_1 k_2 cos_1 sin_1 cos_2 sin_2", real=True
)
new_down, new_up, new_v, new_out, r1, r2, l1, l2 = symbols("D_ij' u_j' v_jt' O_ij' q_1' q_2' k_1' k_2'", real=True)


def _rotated(x1: object, x2: object, cos: object, sin: object) -> tuple[object, object]:
    return x1 * cos - x2 * sin, x1 * sin + x2 * cos  # type: ignore[operator]


def _score(q: tuple[object, object], k: tuple[object, object]) -> object:
    left, right = _rotated(*q, c1, s1), _rotated(*k, c2, s2)
    return left[0] * right[0] + left[1] * right[1]  # type: ignore[operator]


def prove_pairs() -> Proof:
    """One term each of the sums in which the two sites meet."""
    return Proof(
        (
            Lemma(
                "D_ij' a_j u_j' = D_ij a_j u_j, a_j the activated gate",
                Eq(new_down * gate * new_up, down * gate * up),
                {
                    "the up row is scaled": Eq(new_up, sigma * up),
                    "the down column is divided": Eq(sigma * new_down, down),
                },
            ),
            Lemma(
                "O_ij' p_t v_jt' = O_ij p_t v_jt, p_t the attention to token t",
                Eq(new_out * p * new_v, out * p * v),
                {"the v row is scaled": Eq(new_v, sigma * v), "the o column is divided": Eq(sigma * new_out, out)},
            ),
            Lemma(
                "the score of a rotary pair is unchanged, for any two positions",
                Eq(_score((r1, r2), (l1, l2)), _score((q1, q2), (k1, k2))),
                {
                    "q_1 is scaled": Eq(r1, sigma * q1),
                    "q_2 is scaled alike": Eq(r2, sigma * q2),
                    "k_1 is divided": Eq(sigma * l1, k1),
                    "k_2 is divided alike": Eq(sigma * l2, k2),
                },
            ),
        ),
        "Summed over j, t and pairs, for every nonzero σ and any sizes; one k or v row serves all heads of its group.",
    )


class Block(nn.Module):
    """A decoder block in float64: RMSNorm (ε = 0), attention with rotary embedding and one k/v head, gated MLP."""

    norm_1: nn.Parameter
    q: nn.Parameter
    k: nn.Parameter
    v: nn.Parameter
    o: nn.Parameter
    norm_2: nn.Parameter
    gate: nn.Parameter
    up: nn.Parameter
    down: nn.Parameter

    def __init__(self, activation: Callable[[Tensor], Tensor], gated: bool, generator: torch.Generator) -> None:
        super().__init__()
        self.activation, self.gated = activation, gated
        shapes = {
            "norm_1": (WIDTH,),
            "q": (HEADS * HEAD, WIDTH),
            "k": (HEAD, WIDTH),
            "v": (HEAD, WIDTH),
            "o": (WIDTH, HEADS * HEAD),
            "norm_2": (WIDTH,),
            "gate": (HIDDEN, WIDTH),
            "up": (HIDDEN, WIDTH),
            "down": (WIDTH, HIDDEN),
        }
        for name, shape in shapes.items():
            if name == "gate" and not gated:
                continue
            value = torch.randn(shape, generator=generator, dtype=torch.float64)
            self.register_parameter(name, nn.Parameter(value / 2 if len(shape) > 1 else 1 + value / 5))

    def forward(self, x: Tensor) -> Tensor:
        """Hidden states ``(T, WIDTH)`` to hidden states."""
        h = _normalised(x) * self.norm_1
        q, k, v = (h @ w.T for w in (self.q, self.k, self.v))
        q = _rotary(q.unflatten(1, (HEADS, HEAD)).transpose(0, 1))
        scores = q @ _rotary(k).T / HEAD**0.5
        causal = torch.ones(len(x), len(x), dtype=torch.bool).tril()
        attended = scores.masked_fill(~causal, -torch.inf).softmax(-1) @ v
        x = x + attended.transpose(0, 1).flatten(1) @ self.o.T
        h = _normalised(x) * self.norm_2
        hidden = self.activation(h @ self.gate.T) * (h @ self.up.T) if self.gated else self.activation(h @ self.up.T)
        return x + hidden @ self.down.T


def _normalised(x: Tensor) -> Tensor:
    return x / x.square().mean(-1, keepdim=True).sqrt()


def _rotary(x: Tensor) -> Tensor:
    """Rotate the pairs (i, i + HEAD/2) of ``(..., T, HEAD)`` by position."""
    half = HEAD // 2
    angle = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] * 0.7 ** torch.arange(half, dtype=x.dtype)
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * angle.cos() - second * angle.sin(), first * angle.sin() + second * angle.cos()], -1)


ACTIVATIONS = {"silu": nn.functional.silu, "relu": torch.relu}


def block(activation: str, gated: bool, seed: int) -> tuple[Block, Callable[[], Tensor]]:
    """A random block and its outputs on random hidden states."""
    generator = torch.Generator().manual_seed(seed)
    model = Block(ACTIVATIONS[activation], gated, generator)
    x = torch.randn(TOKENS, WIDTH, generator=generator, dtype=torch.float64)
    return model, lambda: model(x)


def found(activation: str, gated: bool, seed: int) -> Redundancies:
    model, forward = block(activation, gated, seed)
    return redundancies(model, forward, seed=seed)


Families = Mapping[str, int]
ATTENTION: Families = {"norm_1 ~ q columns ~ k columns ~ v columns": WIDTH, "v rows ~ o columns": HEAD}
GATED: Families = {"norm_2 ~ gate columns ~ up columns": WIDTH, "up rows ~ down columns": HIDDEN}
UNGATED: Families = {"norm_2 ~ up columns": WIDTH}
BY_PAIR: Families = {"q rows ~ k rows": HEAD // 2}


def families_margin(activation: str, gated: bool, expected: Families, seed: int) -> float:
    """½ minus the number of redundant multipliers found and not expected, or expected and not found."""
    result = found(activation, gated, seed)
    counts = {" ~ ".join(sorted(map(str, f.sites))): f.count for f in result.families}
    named = {" ~ ".join(sorted(name.split(" ~ "))): count for name, count in expected.items()}
    wrong = sum(abs(counts.get(n, 0) - named.get(n, 0)) for n in counts.keys() | named.keys())
    return 0.5 - wrong - result.unexplained


def verified_margin(activation: str, gated: bool, expected: Families, seed: int) -> float:
    """The least slack: each family found, applied with finite factors, changes nothing, and needs all its sites."""
    families = found(activation, gated, seed).families
    return min(min(1 - f.change / EXACT, f.without / NEEDED - 1) for f in families)


def applied_margin(sites: Sequence[tuple[str, str, int]], seed: int) -> float:
    """1 minus the change, in units of `EXACT`, when multiplier i of one site is moved to multiplier i of another."""
    model, forward = block("silu", True, seed)
    generators = {
        Site(name, kind): sign * np.eye(getattr(model, name).shape[kind == "columns"]) for name, kind, sign in sites
    }
    return 1 - verify(model, forward, generators, seed=seed)[0] / EXACT


def evidence(setting: Setting, detail: str, margin: Callable[..., float], **arguments: object) -> Evidence:
    value = margin(**arguments, seed=setting.seed)
    fields = {**arguments, "seed": setting.seed}
    call = f"{margin.__name__}({', '.join(f'{k}={v!r}' for k, v in fields.items())})"
    code = f"from {margin.__module__} import {margin.__name__}\n\nmargin = {call}\nassert margin < 0, margin\n"
    example = Counterexample(fields, value, code) if value < 0 else None
    return measured("simulation", value, detail, seed=setting.seed, counterexample=example)


def _families(activation: str, gated: bool, *expected: Families) -> Callable[[Setting], list[Evidence]]:
    merged = {name: count for families in expected for name, count in families.items()}

    def measure(setting: Setting) -> list[Evidence]:
        arguments = {"activation": activation, "gated": gated, "expected": merged}
        return [
            evidence(setting, "null space, named, against the families expected", families_margin, **arguments),
            evidence(setting, "families applied with finite factors", verified_margin, **arguments),
        ]

    return measure


def _applied(*sites: tuple[str, str, int]) -> Callable[[Setting], list[Evidence]]:
    return lambda setting: [evidence(setting, "change of the outputs", applied_margin, sites=sites)]


claim = Claim(
    id="redundancy",
    title="Redundant multipliers are the null space of the log multipliers",
    statement="In a pre-norm block with rotary grouped-query attention and a gated MLP the redundant row and column "
    "multipliers are, besides rows against columns of one matrix: norm weights with the columns of every consumer, up "
    "rows with down columns, v rows with o columns of their group, q with k rows pair by rotary pair; and no others.",
    formula=r"\ker\,\frac{\partial f}{\partial \ln\,m} = \operatorname{span}\{\text{norm} - \text{consumers},\ "
    r"\text{up} - \text{down},\ v - o,\ q - k \text{ per rotary pair},\ \text{rows} - \text{columns}\}",
    source="arXiv 2601.04890, redundant multipliers; the finder is ours",
    figures=("redundancy",),
    scopes=(
        Scope(
            "pairs",
            "Scaling an up row, a v row or the two q rows of a rotary pair by σ ≠ 0 and dividing the down column, the "
            "o columns or the two k rows by it leaves the outputs the same, for all sizes.",
            holds=True,
            proof=prove_pairs,
        ),
        Scope(
            "gated-block",
            "The finder's families in a random block with SiLU-gated MLP are the four kinds of the statement, complete "
            "and verified by finite factors.",
            holds=True,
            measure=_families("silu", True, ATTENTION, GATED, BY_PAIR),
        ),
        Scope(
            "relu-block",
            "With an ungated ReLU MLP up rows and down columns are redundant as well.",
            holds=True,
            measure=_families("relu", False, ATTENTION, UNGATED, {"up rows ~ down columns": HIDDEN}, BY_PAIR),
        ),
        Scope(
            "silu-block",
            "With an ungated SiLU MLP up rows and down columns are redundant as well.",
            holds=False,
            measure=_families("silu", False, ATTENTION, UNGATED, {"up rows ~ down columns": HIDDEN}, BY_PAIR),
        ),
        Scope(
            "query-key-any-rows",
            "Every q row is redundant with a k row of its own, across rotary pairs, too.",
            holds=False,
            measure=_families("silu", True, ATTENTION, GATED, {"q rows ~ k rows": HEAD}),
        ),
        Scope(
            "gate-down",
            "Gate rows are redundant with down columns.",
            holds=False,
            measure=_applied(("gate", "rows", 1), ("down", "columns", -1)),
        ),
        Scope(
            "up-down-applied",
            "Up rows are redundant with down columns (the same check as of gate rows).",
            holds=True,
            measure=_applied(("up", "rows", 1), ("down", "columns", -1)),
        ),
    ),
)
