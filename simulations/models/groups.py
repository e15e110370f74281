"""Optimizer groups by individual weight decay, in which every trainable parameter stands exactly once.

Sources: arXiv 2605.26895 (individual weight decay), arXiv 2601.04890 (light decay of multipliers).
"""

from __future__ import annotations

import io
import math
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from simulations.models.decay import SCALES, decays, scale_roles
from simulations.models.running import Example
from simulations.models.trace import Trace, trace

MULTIPLIER_DECAY = 2e-3
"""Stops the drift of multipliers along their symmetries (arXiv 2601.04890)."""


@dataclass(frozen=True)
class Member:
    """Where a parameter stands and why.

    Attributes
    ----------
    group : the name of its group.
    kind : what the model uses it for (`Use.kind`), or what was attached.
    weight_decay : λ.
    target : the effective value to which the decay pulls; empty where there is none.
    hidden_matrix : a single matrix that is neither looked up row by row nor the output head.
    """

    group: str
    kind: str
    shape: tuple[int, ...]
    weight_decay: float
    target: str
    hidden_matrix: bool = False


class ParamGroups(Sequence[dict[str, Any]]):
    """Groups as torch's optimizers take them, with ``name`` and ``param_names``; ``str()`` is a table.

    Each access makes the groups anew, since optimizers write into what they are given.

    Parameters
    ----------
    members : of every parameter that stands in a group, by its name in the model.
    model : whose parameters they are.

    Attributes
    ----------
    model : as given.
    members : as given.
    frozen : names of the model's parameters that take no gradient; they stand in no group.
    """

    def __init__(self, members: Mapping[str, Member], model: nn.Module) -> None:
        named = dict(model.named_parameters())
        for name, member in members.items():
            if name not in named or tuple(named[name].shape) != member.shape:
                found = f"has shape {tuple(named[name].shape)}" if name in named else "is not there"
                raise ValueError(f"model: {name} {found}; expected a parameter of shape {member.shape}")
        self.members, self.model = dict(members), model
        self.frozen = tuple(name for name, p in named.items() if not p.requires_grad)
        self._parameters = {name: named[name] for name in members}
        sorted_in: dict[tuple[str, float, str], list[str]] = defaultdict(list)
        for name, m in members.items():
            sorted_in[m.group, m.weight_decay, m.target].append(name)
        self._groups = list(sorted_in.items())

    def __len__(self) -> int:
        return len(self._groups)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        (group, weight_decay, _), names = self._groups[index]
        parameters = [self._parameters[name] for name in names]
        return {"params": parameters, "weight_decay": weight_decay, "name": group, "param_names": list(names)}

    def rebind(self, model: nn.Module) -> ParamGroups:
        """The same groups of the parameters of ``model``: this model wrapped or sharded, such as by `fully_shard`.

        A wrapper may put one prefix before all names (DistributedDataParallel: ``module.``).  Bind after sharding and
        before the first forward pass: `fully_shard` replaces the parameters, and shows whole ones after a pass.

        Raises
        ------
        ValueError : the names or shapes of the parameters differ otherwise, or others take gradients.
        """
        names = {name for name, p in model.named_parameters() if p.requires_grad}
        first = next(iter(self.members), "")
        prefixes = [name.removesuffix(first) for name in names if name.endswith(first)]
        prefix = next((p for p in prefixes if names == {p + name for name in self.members}), "")
        bound = ParamGroups({prefix + name: member for name, member in self.members.items()}, model)
        check_each_once(bound, model)
        return bound

    def __str__(self) -> str:
        from rich.console import Console
        from rich.table import Table

        table = Table(box=None, pad_edge=False)
        for heading in ("group", "kinds", "parameters", "entries", "decay", "target"):
            table.add_column(heading, justify="right" if heading in ("parameters", "entries", "decay") else "left")
        for (group, weight_decay, target), names in self._groups:
            kinds = ", ".join(dict.fromkeys(self.members[name].kind for name in names))
            entries = sum(math.prod(self.members[name].shape) for name in names)
            table.add_row(group, kinds, f"{len(names):,}", f"{entries:,}", f"{weight_decay:g}", target or "–")
        text = io.StringIO()
        Console(file=text, width=100, markup=False, highlight=False).print(table)
        lines = [line.rstrip() for line in text.getvalue().splitlines()]
        if self.frozen:
            lines.append(f"frozen, in no group: {', '.join(self.frozen)}")
        return "\n".join(lines)


def check_each_once(groups: Iterable[Mapping[str, Any]], model: nn.Module) -> None:
    """Check that every parameter of ``model`` that takes a gradient stands in exactly one group, and nothing else does.

    Raises
    ------
    ValueError : otherwise, with the names.
    """
    count = Counter(p for group in groups for p in group["params"])
    expected = {p: name for name, p in model.named_parameters() if p.requires_grad}
    none = [name for p, name in expected.items() if count[p] == 0]
    several = [expected.get(p, "a parameter that takes no gradient") for p, n in count.items() if n > 1]
    foreign = sum(p not in expected for p in count)
    if none or several or foreign:
        raise ValueError(
            f"groups: in none {', '.join(none) or '–'}; in several {', '.join(several) or '–'}; {foreign} that the "
            "model does not train; expected every trainable parameter exactly once"
        )


def iwd_param_groups(
    model: nn.Module,
    example_input: Example | None = None,
    *,
    weight_decay: float,
    scales: str = "iwd",
    multiplier_decay: float = MULTIPLIER_DECAY,
) -> ParamGroups:
    """Optimizer groups of a model by what its data flow does with each parameter (arXiv 2605.26895).

    Decayed: matrices, convolutions, embeddings, and the scales of input norms.  Not decayed: scales of output norms, of
    norms read by something else as well (they cannot be folded), and all other vectors.  Attached multipliers get
    their own decay.  Call it on the plain model; for a wrapped or sharded one see `ParamGroups.rebind`.

    Parameters
    ----------
    example_input : as for `trace`; None for a language model of `transformers`.
    weight_decay : λ of what decays.
    scales : the norm scales that decay: those of input norms (``"iwd"``), ``"none"`` or ``"all"``.
    multiplier_decay : λ of attached scalar, row and column multipliers.

    Raises
    ------
    ValueError : a decay that is negative or not finite, another ``scales``, or a model that does not run.

    Warns
    -----
    UserWarning : the example does not reach some parameters; they get a group of their own without decay.
    """
    for argument, value in (("weight_decay", weight_decay), ("multiplier_decay", multiplier_decay)):
        if not (value >= 0 and math.isfinite(value)):
            raise ValueError(f"{argument}={value}: expected a finite number >= 0")
    if scales not in SCALES:
        raise ValueError(f"scales={scales!r}: expected one of {', '.join(SCALES)}")
    traced = trace(model, example_input)
    members = _members(traced, weight_decay, scales)
    trainable = {name for name, p in model.named_parameters() if p.requires_grad}
    if unread := [name for name in traced.unread if name in trainable]:
        warnings.warn(f"the example does not reach {', '.join(unread)}: they get no weight decay", stacklevel=2)
    groups = ParamGroups({name: m for name, m in members.items() if name in trainable}, model)
    check_each_once(groups, model)
    return groups


def _members(traced: Trace, weight_decay: float, scales: str) -> dict[str, Member]:
    roles = scale_roles(traced.norms)
    offsets = {n.scale: n.offset for n in traced.norms if n.scale is not None}
    members = {}
    for name, use in traced.uses.items():
        offset = offsets.get(name, 0.0)
        looked_up = "embedding" in use.operations
        hidden = use.kind == "matrix" and len(use.shape) == 2 and not looked_up and not use.returned
        group = {
            "matrix": "hidden matrices"
            if hidden
            else "embeddings and head"
            if len(use.shape) == 2
            else "stacks of matrices",
            "embedding": "embeddings and head",
            "convolution": "convolutions",
            "scale": f"{roles.get(name)} scales" + (f" ({offset:g} + w)" if offset else ""),
            "bias": "vectors",
            "vector": "vectors",
            "unread": "not reached",
        }[use.kind]
        decayed = decays(use, roles.get(name), scales)
        target = (f"{offset:g} (w itself to 0)" if offset else "0") if decayed and weight_decay else ""
        members[name] = Member(group, use.kind, use.shape, weight_decay if decayed else 0.0, target, hidden)
    return members


def split_for_muon(groups: ParamGroups) -> tuple[ParamGroups, ParamGroups]:
    """The hidden matrices, which torch's Muon takes, and everything else, for AdamW: vectors, stacks, embeddings, head.

    Bind the groups to a wrapped or sharded model before, not after.
    """
    first, second = (
        ParamGroups({name: m for name, m in groups.members.items() if m.hidden_matrix is hidden}, groups.model)
        for hidden in (True, False)
    )
    check_each_once([*first, *second], groups.model)
    return first, second
