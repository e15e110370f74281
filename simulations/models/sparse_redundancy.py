"""Redundant multipliers of models too wide for `redundancies`: those in which few entries or whole vectors take part.

The outputs' derivative in the logarithms of all multipliers is known only in a few random combinations of the outputs.
That many numbers say nothing of a null vector with many entries, but they determine one with few: it is found entry by
entry, and vector by vector, by orthogonal matching pursuit, and is then applied to the model with finite factors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from scalevec_theory.redundancy import FloatArray, Redundancy, Site, dependent_outputs, verify

COMBINATIONS = 192
"""Random combinations of the outputs that are differentiated."""

TERMS = 24
"""Most entries that take part in one redundancy."""

TRIED = 4
"""Entries of each vector that are tried first; all others only where one of these is redundant."""

RESIDUAL, NEGLIGIBLE = 1e-9, 1e-6
"""Relative size of what may be left of a derivative, and of an exponent that counts as zero."""


def sparse_redundancies(
    module: nn.Module, forward: Callable[[], Tensor], *, offsets: Mapping[str, float], seed: int = 0
) -> tuple[Redundancy, ...]:
    """The redundancies of at most `TERMS` entries, and those of so many whole vectors; parameters as `redundancies`.

    Every parameter that requires a gradient is one vector, whatever its shape.

    Raises
    ------
    ValueError : too few outputs, or as `dependent_outputs`.
    """
    parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
    J = _derivatives(parameters, forward, offsets, seed)
    size = np.linalg.norm(J, axis=0)
    seen = size > 1e-14 * size.max()
    unit = np.where(seen, J / np.where(seen, size, 1.0), 0.0)
    names = list(parameters)
    ends = np.cumsum([p.numel() for p in parameters.values()])
    entries = {n: np.arange(end - parameters[n].numel(), end) for n, end in zip(names, ends, strict=True)}
    site = np.repeat(np.arange(len(names)), [len(entries[n]) for n in names])
    generator = np.random.default_rng(seed)
    kinds: dict[frozenset[str], str] = {}
    for name in names:
        for i in generator.permutation(entries[name])[:TRIED]:
            found = _sparse_null_vector(unit, int(i), np.flatnonzero(seen)) if seen[i] else None
            if found is not None:
                kinds.setdefault(frozenset(names[site[j]] for j in found), name)
    found_by_sites: dict[frozenset[str], FloatArray] = {}
    for members, pivot in kinds.items():
        among = np.concatenate([entries[n] for n in names if n in members])
        pivots = entries[pivot][seen[entries[pivot]]]
        found_by_sites[members] = np.stack(_all_null_vectors(unit, pivots, among[seen[among]], size, site))
    for members, vector in _of_whole_vectors(J, entries).items():
        found_by_sites.setdefault(members, vector[None])
    families = []
    for members, vectors in found_by_sites.items():
        shapes = {n: parameters[n].shape for n in names if n in members}
        sites = {Site(n, "entries"): vectors[:, entries[n]].reshape(-1, *shape) for n, shape in shapes.items()}
        families.append(Redundancy(sites, *verify(module, forward, sites, offsets, seed)))
    return tuple(sorted(families, key=lambda f: (-f.count, len(f.sites))))


def _of_whole_vectors(J: FloatArray, entries: Mapping[str, FloatArray]) -> dict[frozenset[str], FloatArray]:
    """Null vectors that are constant on each vector, by the vectors that take part."""
    names = list(entries)
    whole = np.stack([J[:, entries[n]].sum(1) for n in names], 1)
    size = np.linalg.norm(whole, axis=0)
    seen = np.flatnonzero(size > RESIDUAL * size.max())
    unit = whole / np.where(size > RESIDUAL * size.max(), size, 1.0)
    found: dict[frozenset[str], FloatArray] = {}
    for vector in _all_null_vectors(unit, seen, seen, size, np.arange(len(names))):
        spread = np.zeros(J.shape[1])
        for name, exponent in zip(names, vector, strict=True):
            spread[entries[name]] = exponent
        found[frozenset(n for n, e in zip(names, vector, strict=True) if e)] = spread
    return found


def _derivatives(
    parameters: Mapping[str, Tensor], forward: Callable[[], Tensor], offsets: Mapping[str, float], seed: int
) -> FloatArray:
    """`COMBINATIONS` of the outputs, differentiated in the log multipliers ``(combinations, entries)``."""
    outputs = dependent_outputs(parameters, forward)
    if len(outputs) < COMBINATIONS:
        raise ValueError(f"forward() returned {len(outputs)} numbers: expected >= {COMBINATIONS}")
    generator = torch.Generator().manual_seed(seed)
    blocks = []
    for _ in range(0, COMBINATIONS, 16):
        mix = torch.randn(16, len(outputs), generator=generator, dtype=torch.float64)
        gradients = torch.autograd.grad(
            outputs, list(parameters.values()), mix, is_grads_batched=True, retain_graph=True, allow_unused=True
        )
        products = [
            torch.zeros(16, p.numel(), dtype=p.dtype)
            if g is None
            else (g * (offsets.get(name, 0.0) + p.detach())).flatten(1)
            for (name, p), g in zip(parameters.items(), gradients, strict=True)
        ]
        blocks.append(torch.cat(products, 1))
    return torch.cat(blocks).detach().numpy()


def _all_null_vectors(
    unit: FloatArray, pivots: FloatArray, among: FloatArray, size: FloatArray, site: FloatArray
) -> list[FloatArray]:
    """Null vectors ``(entries,)`` over ``among``, one for each of the pivots that is in none before it.

    An entry is first tried in the place that those before it have in theirs: with the same distances along each vector,
    which ``site`` numbers.  So those are found, too, of which some entries nearly cancel by themselves, as in rotary
    pairs that hardly rotate.
    """
    vectors: list[FloatArray] = []
    covered: set[int] = set()
    known = set(among.tolist())
    before: list[tuple[int, FloatArray]] = []
    for i in pivots:
        if i in covered:
            continue
        found = None
        for pivot, places in reversed(before[-TRIED:]):
            moved = places + i - pivot
            if known.issuperset(moved.tolist()) and np.array_equal(site[moved], site[places]):
                found = found or _combination(unit, int(i), [int(j) for j in moved if j != i])
        found = found or _sparse_null_vector(unit, int(i), among)
        if found is not None:
            vector = np.zeros(unit.shape[1])
            for j, exponent in found.items():
                vector[j] = exponent * size[i] / size[j]
            vectors.append(vector)
            covered |= set(found)
            before.append((int(i), np.array(list(found))))
    return vectors


def _combination(unit: FloatArray, pivot: int, chosen: Sequence[int]) -> dict[int, float] | None:
    """Exponents by entry, that of the pivot 1, such that it and the chosen columns combine to 0; None if none do."""
    exponents = np.linalg.lstsq(unit[:, chosen], -unit[:, pivot], rcond=None)[0]
    if np.linalg.norm(unit[:, pivot] + unit[:, chosen] @ exponents) > RESIDUAL:
        return None
    kept = {j: float(e) for j, e in zip(chosen, exponents, strict=True) if abs(e) > NEGLIGIBLE}
    return {pivot: 1.0, **kept}


def _sparse_null_vector(unit: FloatArray, pivot: int, among: FloatArray) -> dict[int, float] | None:
    """Exponents by entry, that of the pivot 1, such that the columns so combined are 0; None if few columns do not."""
    columns = among[among != pivot]
    residual, chosen = -unit[:, pivot], list[int]()
    while len(chosen) < 2 * TERMS and np.linalg.norm(residual) > RESIDUAL:
        chosen.append(int(columns[np.argmax(np.abs(residual @ unit[:, columns]))]))
        exponents = np.linalg.lstsq(unit[:, chosen], -unit[:, pivot], rcond=None)[0]
        residual = -unit[:, pivot] - unit[:, chosen] @ exponents
    found = _combination(unit, pivot, chosen)
    return found if found is not None and len(found) <= TERMS else None
