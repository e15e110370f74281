"""Redundant multipliers of a network: the null space of ∂(function)/∂(log multipliers), as named sites.

Every row and every column of every matrix, and every entry of every vector, is given a multiplier that is 1.  The
outputs' derivative in the logarithms of all of them is a matrix J; a null vector y says that multiplying site i by
e^{t y_i}, all together, leaves the function as it is to first order in t.  Each one found is then applied with finite t
and the outputs compared.  A symmetry is null wherever the parameters are: those that are null at a second point, too,
come first.  What is left holds to first order only, such as a shift from one bias to another.

Source: arXiv 2601.04890 (redundant multipliers); the method is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import qr
from scipy.optimize import linprog
from torch import Tensor, nn

FloatArray = np.ndarray

NULL = 1e-10
"""Singular values below this, relative to the largest, are null."""

GAP = 10.0
"""Factor by which singular values must stay away from `NULL` on both sides."""

SPARE = 16
"""Combinations of outputs beyond the number of unknowns that they decide."""

SUPPORT = 1e-6
"""Entries of null vectors below this, or below ten times the ratio of the singular values on both sides of the gap, are
taken for zero: so far null vectors may be off."""

FINITE = 0.3
"""Size of the logarithms at which a symmetry is applied to be verified, and of those that lead to the second point."""


@dataclass(frozen=True)
class Site:
    """All multipliers of one kind on one parameter: ``rows``, ``columns`` or (of a vector) ``entries``.

    A stack of matrices ``(..., c, d)`` has rows ``(..., c)`` and columns ``(..., d)``, matrix by matrix.
    """

    parameter: str
    kind: str

    def __str__(self) -> str:
        return self.parameter if self.kind == "entries" else f"{self.parameter} {self.kind}"

    def contract(self, x: Tensor) -> Tensor:
        """Sum of ``x`` ``(..., *shape)`` over what each multiplier scales, flattened to ``(..., n)``."""
        return x if self.kind == "entries" else x.sum(-1 if self.kind == "rows" else -2)

    def spread(self, factors: Tensor) -> Tensor:
        """Factors, one per multiplier, in a shape that broadcasts against the parameter."""
        return factors if self.kind == "entries" else factors.unsqueeze(-1 if self.kind == "rows" else -2)


@dataclass(frozen=True)
class Redundancy:
    """A family of symmetries that act on the same sites.

    ``generators`` maps each site to an array ``(K, *multipliers)`` of exponents, one symmetry per k: the multipliers
    may be scaled by e^{t y} together.  ``change`` is the relative change of the outputs under a random finite member,
    ``without`` the least such change when one of the sites is left out (the symmetry must need them all).
    ``first_order`` says that the family is null at these parameters only, and so no symmetry.
    """

    generators: Mapping[Site, FloatArray]
    change: float
    without: float
    first_order: bool = False

    @property
    def sites(self) -> tuple[Site, ...]:
        return tuple(self.generators)

    @property
    def count(self) -> int:
        return len(next(iter(self.generators.values())))

    def __str__(self) -> str:
        """The sites, how many symmetries, and the first of them."""
        parts = []
        for site, y in self.generators.items():
            index = np.argwhere(np.abs(y[0]) > SUPPORT)
            shown = ", ".join("[" + ",".join(map(str, i)) + "]" for i in index[:4]) + (" …" if len(index) > 4 else "")
            exponents = sorted({round(float(e), 6) for e in y[0][np.abs(y[0]) > SUPPORT]})
            powers = ", ".join(f"{e:+g}" for e in exponents[:3]) + (" …" if len(exponents) > 3 else "")
            parts.append(f"{site}{shown} ^({powers})")
        names = " ~ ".join(str(site) for site in self.sites)
        reach = ", to first order only" if self.first_order else ""
        return f"{names}: {self.count} symmetries{reach}, e.g. {'; '.join(parts)}; change {self.change:.1e}"


@dataclass(frozen=True)
class Redundancies:
    """What `redundancies` found.

    ``nullity`` is the dimension of the null space; of it, ``trivial`` are rows against columns of one matrix, and
    ``families`` account for the rest unless ``unexplained`` > 0.  ``gap`` are the largest null and the smallest other
    singular value, relative to the largest.  ``unseen`` counts multipliers on which the outputs do not depend at all.
    """

    families: tuple[Redundancy, ...]
    nullity: int
    trivial: int
    unexplained: int
    unseen: int
    gap: tuple[float, float]

    def __str__(self) -> str:
        head = (
            f"{self.nullity} redundant multipliers: {self.trivial} trivial (all rows against all columns of a matrix), "
            f"{self.nullity - self.trivial - self.unexplained} in the families below, {self.unexplained} unexplained; "
            f"{self.unseen} without any effect; singular values {self.gap[0]:.0e} | {self.gap[1]:.0e}"
        )
        return "\n".join([head, *(f"  {family}" for family in self.families)])


def redundancies(
    module: nn.Module,
    forward: Callable[[], Tensor],
    *,
    offsets: Mapping[str, float] | None = None,
    null: float = NULL,
    seed: int = 0,
) -> Redundancies:
    """Find the redundant multipliers of ``module``, whose outputs ``forward()`` returns, in float64.

    Parameters
    ----------
    forward : runs the module on a fixed input that reaches every parameter; any shape of output.
    offsets : for parameters that act as offset + w (Gemma's norms), the offset by name; the multiplier is on the sum.
    null : relative size below which a singular value counts as zero.  Larger values also find symmetries that a norm's
        ε breaks slightly.
    seed : of the random combinations of outputs and of the finite symmetries applied.

    Raises
    ------
    ValueError : no parameter requires a gradient, or one that does is not float64; an unknown name in ``offsets``; an
        output that is not finite, too few outputs for the number of multipliers, or outputs that depend on none; or no
        gap in the singular values at ``null``.
    """
    parameters = {n: p for n, p in module.named_parameters() if p.requires_grad}
    offsets = dict(offsets or {})
    for name, p in parameters.items():
        if p.dtype != torch.float64:
            raise ValueError(f"{name} has dtype {p.dtype}: expected torch.float64, in which rank can be decided")
    if unknown := set(offsets) - set(parameters):
        raise ValueError(f"offsets={sorted(unknown)}: no such parameters; there are {', '.join(parameters)}")
    sites = [
        Site(name, kind)
        for name, p in parameters.items()
        for kind in (("rows", "columns") if p.ndim > 1 else ("entries",))
    ]
    shapes = {s: s.contract(parameters[s.parameter].detach()).shape for s in sites}
    generator = torch.Generator().manual_seed(seed)
    count = sum(shape.numel() for shape in shapes.values())
    J = _jacobian(parameters, forward, offsets, sites, generator, count + SPARE)
    size = np.linalg.norm(J, axis=0)
    if not size.any():
        raise ValueError(f"forward() changes with none of {count} multipliers: expected parameters that are not all 0")
    seen = size > 1e-14 * size.max()
    basis, gap = _null_space(J[:, seen] / size[seen], null)
    support = max(SUPPORT, 10 * gap[0] / gap[1])
    full = np.zeros((J.shape[1], basis.shape[1]))
    full[seen] = basis / size[seen, None]
    slices, start = {}, 0
    for s in sites:
        slices[s] = slice(start, start + shapes[s].numel())
        start += shapes[s].numel()
    trivial = _trivial(sites, slices, seen, parameters)
    families: list[Redundancy] = []
    explained, exact = trivial, full
    if full.shape[1]:
        with _moved(parameters, offsets, sites, generator):
            elsewhere = _jacobian(parameters, forward, offsets, sites, generator, full.shape[1] + SPARE)
        elsewhere = elsewhere[:, seen] / size[seen]
        exact = _within(full, elsewhere @ basis / np.linalg.norm(elsewhere, 2), support)
    for space in (exact, full):
        # What acts on a site as the part explained (the size of a whole matrix) shows only once that is not left out.
        for left_out in (explained, trivial[:, :0]):
            if _rank(explained, support) == space.shape[1]:
                break
            for group in _families(space, left_out, sites, slices, support):
                generators = {s: y.reshape(-1, *shapes[s]) for s, y in group.items()}
                joined = np.zeros((J.shape[1], len(next(iter(generators.values())))))
                for s, y in group.items():
                    joined[slices[s]] = y.T
                combined = np.hstack([explained, joined / np.linalg.norm(joined, axis=0)])
                if _rank(combined, support) > _rank(explained, support):
                    explained = combined
                    verified = verify(module, forward, generators, offsets, seed)
                    families.append(Redundancy(generators, *verified, first_order=space is not exact))
    rank = _rank(explained, support)
    return Redundancies(tuple(families), full.shape[1], trivial.shape[1], full.shape[1] - rank, int((~seen).sum()), gap)


@contextmanager
def _moved(
    parameters: Mapping[str, Tensor], offsets: Mapping[str, float], sites: Sequence[Site], generator: torch.Generator
) -> Iterator[None]:
    """Every multiplier at a random value while it lasts, its logarithm of size `FINITE`."""
    kept = {name: p.detach().clone() for name, p in parameters.items()}
    try:
        with torch.no_grad():
            for s in sites:
                p, offset = parameters[s.parameter], offsets.get(s.parameter, 0.0)
                logs = FINITE * torch.randn(s.contract(p).shape, generator=generator, dtype=p.dtype)
                p.copy_((offset + p) * s.spread(logs.exp()) - offset)
        yield
    finally:
        with torch.no_grad():
            for name, p in parameters.items():
                p.copy_(kept[name])


def dependent_outputs(parameters: Mapping[str, Tensor], forward: Callable[[], Tensor]) -> Tensor:
    """What ``forward()`` returns, flattened.

    Raises
    ------
    ValueError : there are no parameters, or the outputs are not finite or have no gradient.
    """
    if not parameters:
        raise ValueError("module has no parameter that requires a gradient: expected one")
    outputs = forward().flatten()
    if not bool(outputs.isfinite().all()):
        raise ValueError(f"forward() returned {int((~outputs.isfinite()).sum())} numbers that are not finite")
    if not outputs.requires_grad:
        raise ValueError("forward() returned numbers without a gradient: expected outputs that depend on parameters")
    return outputs


def _jacobian(
    parameters: Mapping[str, Tensor],
    forward: Callable[[], Tensor],
    offsets: Mapping[str, float],
    sites: Sequence[Site],
    generator: torch.Generator,
    wanted: int,
) -> FloatArray:
    """``wanted`` random combinations of the outputs, differentiated in the log multipliers: ``(wanted, M)``."""
    outputs = dependent_outputs(parameters, forward)
    if len(outputs) < wanted:
        raise ValueError(
            f"forward() returned {len(outputs)} numbers for {wanted - SPARE} multipliers: expected >= {wanted}"
        )
    blocks = []
    for first in range(0, wanted, 64):
        mix = torch.randn(min(64, wanted - first), len(outputs), generator=generator, dtype=torch.float64)
        gradients = torch.autograd.grad(
            outputs, list(parameters.values()), mix, is_grads_batched=True, retain_graph=True, allow_unused=True
        )
        # ∂/∂log m of (offset + w) m is (offset + w) ∂/∂w.
        products = {
            name: torch.zeros(len(mix), *p.shape, dtype=p.dtype)
            if g is None
            else g * (offsets.get(name, 0.0) + p.detach())
            for (name, p), g in zip(parameters.items(), gradients, strict=True)
        }
        blocks.append(torch.cat([s.contract(products[s.parameter]).reshape(len(mix), -1) for s in sites], 1))
    return torch.cat(blocks).detach().numpy()


def _null_space(J: FloatArray, null: float) -> tuple[FloatArray, tuple[float, float]]:
    """An orthonormal basis ``(M, K)`` of the null space, and the singular values on both sides of ``null``."""
    _, values, rows = np.linalg.svd(J, full_matrices=False)
    values = values / values[0]
    below, above = values[values < null], values[values >= null]
    gap = float(below.max()) if len(below) else 0.0, float(above.min())
    if gap[0] * GAP > null or gap[1] < null * GAP:
        raise ValueError(
            f"null={null:g}: no gap in the singular values there, {gap[0]:.1e} and {gap[1]:.1e} are its neighbours; "
            f"expected a number with a factor {GAP:g} to both"
        )
    return rows[values < null].T, gap


def _trivial(
    sites: Sequence[Site], slices: Mapping[Site, slice], seen: FloatArray, parameters: Mapping[str, Tensor]
) -> FloatArray:
    """All rows of one matrix up, all its columns down: one null vector for each matrix of each stack ``(M, K)``."""
    columns = []
    for s in (s for s in sites if s.kind == "rows"):
        *stack, c, d = parameters[s.parameter].shape
        other = Site(s.parameter, "columns")
        for index in range(int(np.prod(stack))):
            y = np.zeros(len(seen))
            y[slices[s]].reshape(-1, c)[index], y[slices[other]].reshape(-1, d)[index] = 1.0, -1.0
            y = np.where(seen, y, 0.0)
            if y.any():
                columns.append(y / np.linalg.norm(y))
    return np.stack(columns, 1) if columns else np.zeros((len(seen), 0))


def _within(basis: FloatArray, rows: FloatArray, support: float) -> FloatArray:
    """The part of a space (orthonormal columns of ``basis``) that vanishes on ``rows``, some of its rows."""
    if not basis.shape[1] or np.abs(rows).max() < support:
        return basis
    q, r, _ = qr(rows.T, pivoting=True)
    rank = int((np.abs(np.diagonal(r)) > support).sum())
    return basis @ q[:, rank:]


def _rank(x: FloatArray, support: float) -> int:
    return int(np.linalg.matrix_rank(x, tol=support)) if x.size else 0


def _families(
    null: FloatArray, trivial: FloatArray, sites: Sequence[Site], slices: Mapping[Site, slice], support: float
) -> list[dict[Site, FloatArray]]:
    """For each site the smallest set of sites that still carries all its redundancy, with the sparsest generators.

    Sites are dropped one by one (latest first) while the rank of the null space on the site in question, beyond that of
    ``trivial``, stays.  The families with most symmetries come first, so that what follows from them is told;
    the exponents of a vector, where there is one, are 1.
    """
    orthonormal = np.linalg.qr(null)[0] if null.size else null
    found: dict[frozenset[Site], dict[Site, FloatArray]] = {}
    for site in sorted(sites, key=lambda s: s.kind != "entries"):
        cut = slices[site]

        def rank(space: FloatArray, cut: slice = cut) -> int:
            return _rank(np.hstack([space[cut], trivial[cut]]), support)

        space, full = orthonormal, rank(orthonormal)
        if full == _rank(trivial[cut], support):
            continue
        for other in reversed(sites):
            if other != site:
                smaller = _within(space, space[slices[other]], support)
                if rank(smaller) == full:
                    space = smaller
        kept = [s for s in sites if np.abs(space[slices[s]]).max() > support]
        if frozenset(kept) not in found:
            found[frozenset(kept)] = _sparse(space, {s: slices[s] for s in kept}, site, support)
    return sorted(found.values(), key=lambda family: (-len(next(iter(family.values()))), len(family)))


def _sparse(space: FloatArray, slices: Mapping[Site, slice], pivot: Site, support: float) -> dict[Site, FloatArray]:
    """Generators ``(K, n)`` by site: each has one multiplier of ``pivot`` to itself, with exponent 1.

    What the space holds besides, without touching ``pivot``, is subtracted so that the sum of |exponents| is least.
    """
    own = space[slices[pivot]]
    rank = _rank(own, support)
    _, _, order = qr(own.T, pivoting=True)
    generators = space @ np.linalg.pinv(own[np.sort(order[:rank])])
    rest = _within(space, own, support)
    if rest.shape[1]:
        generators = np.stack([_least_sum(y, rest, support) for y in generators.T], 1)
    generators[np.abs(generators) < support] = 0.0
    return {s: generators[cut].T for s, cut in slices.items()}


def _least_sum(y: FloatArray, directions: FloatArray, support: float) -> FloatArray:
    """y + directions · a with the least sum of absolute values, by linear programming in (a, bounds of |entries|)."""
    used = np.abs(directions).max(1) > support
    rows = directions[used]
    size, k = rows.shape
    cost = np.concatenate([np.zeros(k), np.ones(size)])
    eye = np.eye(size)
    above = np.block([[rows, -eye], [-rows, -eye]])
    bounds = [(None, None)] * k + [(0, None)] * size
    solution = linprog(cost, above, np.concatenate([-y[used], y[used]]), bounds=bounds)
    return y + directions @ solution.x[:k] if solution.success else y


def verify(
    module: nn.Module,
    forward: Callable[[], Tensor],
    generators: Mapping[Site, FloatArray],
    offsets: Mapping[str, float] | None = None,
    seed: int = 0,
) -> tuple[float, float]:
    """Relative change of the outputs under a random finite symmetry, and the least with one of its sites left out.

    ``generators`` as in `Redundancy`; the largest logarithm applied is `FINITE`.  The module is left as it was.
    """
    parameters, offsets = dict(module.named_parameters()), offsets or {}
    count = len(next(iter(generators.values())))
    t = np.random.default_rng(seed).standard_normal(count)
    exponents = {s: np.tensordot(t, y, 1) for s, y in generators.items()}
    largest = max(np.abs(y).max() for y in exponents.values())
    factors = {s: torch.as_tensor(np.exp(FINITE * y / largest)) for s, y in exponents.items()}
    with torch.no_grad():
        kept = {s.parameter: parameters[s.parameter].clone() for s in generators}
        before = forward()

        def change(sites: Sequence[Site]) -> float:
            try:
                for s in sites:
                    p, offset = parameters[s.parameter], offsets.get(s.parameter, 0.0)
                    p.copy_((offset + p) * s.spread(factors[s]) - offset)
                return float((forward() - before).abs().max() / before.abs().max())
            finally:
                for s in sites:
                    parameters[s.parameter].copy_(kept[s.parameter])

        everything = list(generators)
        left_out = [change([s for s in everything if s != one]) for one in everything]
        return change(everything), min(left_out)
