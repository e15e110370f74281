"""Where a recipe, a name or a habit goes wrong on a given model: the warnings of an audit, one line each."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from simulations.models.decay import WEIGHTS
from simulations.models.roles import Trace, template

if TYPE_CHECKING:
    from simulations.models.audit import Row, Rules

NAMED = 4
"""Names that a warning lists before it counts."""


def pitfalls(rows: tuple[Row, ...], traced: Trace, rules: Rules) -> tuple[str, ...]:
    """The warnings that apply to a model, from the rows of its audit, its trace and what each recipe decays."""
    return tuple(_of_norms(rows)) + tuple(_of_recipes(rows, traced, rules)) + tuple(_of_trace(traced))


def _of_norms(rows: tuple[Row, ...]) -> Iterator[str]:
    scales = [r for r in rows if r.param and r.effective != "bias"]

    def where(condition: Callable[[Row], bool]) -> str:
        return listed(r.template for r in scales if condition(r))

    if found := where(lambda r: r.role == "input" and _named(r, r"post")):
        yield f"{found}: named as if it came after its sub-module, but it is an input norm"
    if found := where(lambda r: r.role != "input" and _named(r, r"pre|input")):
        yield f"{found}: named as if it came before its sub-module, but it is no input norm"
    if found := where(lambda r: r.effective not in ("w", "f(w)")):
        yield (
            f"{found}: the scale is offset + w (1 + w); weight decay pulls it to the offset, not to 0, and dividing w "
            "by s does not divide the scale: w becomes (1 + w)/s − 1"
        )
    if found := where(lambda r: r.effective_init is not None and abs(r.effective_init - 1) > 1e-3):
        yield f"{found}: the effective scale is not 1 (mean over channels)"
    if found := where(lambda r: "untie_lm_head" in r.requires):
        yield f"{found}: its consumer is tied to a weight that is used elsewhere: untie before folding; Q has no law"
    if found := where(lambda r: "handle_norm_bias" in r.requires):
        yield f"{found}: folding moves the norm's bias into the consumers' biases, created where there are none"
    if found := where(lambda r: "rescale router and every expert" in r.requires):
        yield f"{found}: router and experts read the same norm: fold into all of them or none"
    if found := where(lambda r: r.role == "mixed" and r.others != ("returned",)):
        yield f"{found}: mixed: weights and something else read it; it neither folds nor counts as an input norm"
    reasons: dict[str, list[str]] = defaultdict(list)
    for r in rows:
        told = r.effective in ("f(w)", "unclear") or (r.role == "mixed" and r.others == ("returned",))
        if r.fold_exact is False and (told or (r.role == "input" and "untie_lm_head" not in r.requires)):
            reasons[template(r.reason)].append(r.template)
    for reason, names in reasons.items():
        yield f"{listed(names)}: {reason}"
    if found := where(lambda r: "rope" in r.flags):
        yield f"{found}: a rotary embedding follows: only scales that are equal on each rotary pair pass it"
    if found := listed(r.template for r in rows if r.effective == "none"):
        yield f"{found}: a norm without a scale"


def _of_recipes(rows: tuple[Row, ...], traced: Trace, rules: Rules) -> Iterator[str]:
    names = {"dim_rule": "the dimension rule", "trainer": "Trainer", "all": "one group for all"}
    scales = [r for r in rows if r.param and r.effective != "bias"]
    by_role: Mapping[str, list[Row]] = {role: [r for r in scales if r.role == role] for role in ("input", "output")}
    for key, recipe in names.items():
        decayed = [r for r in scales if r.decay[key]]
        if key != "all" and decayed and len(decayed) < len(scales):
            yield f"{recipe} decays {listed(r.template for r in decayed)} and no other norm scale"
        elif key != "all" and decayed:
            yield f"{recipe} decays every norm scale"
        outputs = [r for r in by_role["output"] if r.decay[key]]
        if outputs and not any(r.decay[key] for r in by_role["input"]) and by_role["input"]:
            yield f"{recipe} decays output norms and no input norm: the opposite of IWD"
        elif outputs:
            named = listed(r.template for r in outputs)
            yield f"{recipe} decays output norms ({named}): no weight before them can make up for it"
        vectors = [n for n, u in traced.uses.items() if u.kind == "vector" and rules[key].get(n)]
        if vectors and key != "all":
            yield f"{recipe} decays {listed(map(template, vectors))}, which no matrix product reads"
        missed = [n for n, u in traced.uses.items() if u.kind in WEIGHTS and rules[key].get(n) is False]
        if missed:
            yield f"{recipe} does not decay the weight {listed(map(template, missed))}"


def _of_trace(traced: Trace) -> Iterator[str]:
    if unread := traced.unread:
        yield f"{listed(map(template, unread))}: not read on this example; nothing is known of what reads a norm there"


def _named(row: Row, pattern: str) -> bool:
    return bool(re.match(rf"({pattern})(_|$)", row.norm.rpartition(".")[2]))


def listed(names: Iterable[str]) -> str:
    """Each name once, in order; those beyond the first few only counted."""
    found = list(dict.fromkeys(names))
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return ", ".join(found[:NAMED]) + more
