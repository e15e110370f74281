"""Falsification: minimise a margin over a problem space, verify what is found, and shrink it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from scalevec_theory.claim import Margin, Scope
from scalevec_theory.counts import check_count
from scalevec_theory.problems import Problems, ProblemSpace, Rng

BATCH = 2048
ELITES = 8
ROUNDS = 16
DESCENTS = 3


@dataclass(frozen=True)
class SearchOutcome:
    """What a search saw: the smallest margin with its error, how many problems, and a verified counterexample.

    ``margin`` is minus infinity if any margin was; ``unverified``: a violation failed to compute when it was verified.
    """

    margin: float
    error: float
    instances: int
    invalid: int
    undecided: int
    counterexample: Problems | None
    unverified: bool = False


def margins(scope: Scope, problems: Problems, accuracy: float, device: str = "cpu") -> Margin:
    """The margins of a batch, computed on ``device``, on the CPU; one whose error is NaN failed to compute: NaN."""
    assert scope.margin is not None
    m = scope.margin(problems.to(device), accuracy)
    if not isinstance(m, Margin):
        raise TypeError(f"scope {scope.name!r}: its margin returned {type(m).__name__}, expected a Margin")
    if len(m.value) != len(problems):
        raise ValueError(
            f"scope {scope.name!r}: its margin returned {len(m.value)} values for {len(problems)} problems"
        )
    value, error = m.value.detach().double().cpu(), m.error.detach().double().cpu()
    return Margin(torch.where(error.isnan(), torch.nan, value), torch.where(error.isnan(), torch.inf, error))


def violation(scope: Scope, problems: Problems, device: str = "cpu") -> Tensor:
    """The margin ``(B,)`` of each verified counterexample, infinity for every other problem.

    Verified: inside the space, and negative beyond the numerical error both at the scope's accuracy and at a hundredth
    of it.
    """
    assert scope.space is not None
    values = torch.full((len(problems),), torch.inf, dtype=torch.float64)
    index = torch.nonzero(scope.space.contains(problems))[:, 0]
    for accuracy in (scope.accuracy, scope.accuracy / 100):
        if len(index) == 0:
            break
        m = margins(scope, problems.select(index), accuracy, device)
        bad = m.value < -m.error
        values[index] = torch.where(bad, m.value, torch.inf)
        index = index[bad]
    return values


def search(scope: Scope, budget: int, rng: Rng, device: str = "cpu") -> SearchOutcome:
    """Spend ``budget`` problems: half on draws over every size, half on descent in the worst sizes; then shrink."""
    if scope.space is None or scope.margin is None:
        raise ValueError(f"scope {scope.name!r} is not stated on a problem space")
    check_count("budget", budget)
    space = scope.space
    sizes = space.sizes()
    invalid = undecided = instances = 0
    worst: list[tuple[np.ndarray, Problems]] = []
    lowest, its_error = np.inf, 0.0

    def look(problems: Problems) -> np.ndarray:
        nonlocal invalid, undecided, instances, lowest, its_error
        m = margins(scope, problems, scope.accuracy, device)
        value, error = m.value.numpy(), m.error.numpy()
        finite = np.isfinite(value)
        instances += len(value)
        invalid += int((~finite).sum())
        undecided += int((finite & (np.abs(value) < error)).sum())
        ranked = np.where(finite, value, np.inf)
        if len(ranked) and ranked.min() < lowest:
            lowest, its_error = float(ranked.min()), float(error[ranked.argmin()])
        if (value == -np.inf).any():
            lowest, its_error = -np.inf, 0.0
        return ranked

    drawn = max(1, budget // (2 * len(sizes)))
    for dims in sizes:
        elite: tuple[np.ndarray, Problems] | None = None
        for start in range(0, drawn, BATCH):
            problems = space.draw(min(BATCH, drawn - start), dims, rng)
            problems = problems.select(space.contains(problems))
            if len(problems):
                elite = _best(elite, look(problems), problems, ELITES)
        if elite is not None:
            worst.append(elite)
    worst.sort(key=lambda elite: float(elite[0][0]))
    descents = max(1, min(DESCENTS, len(worst)))
    rounds = max(2, min(ROUNDS, budget // (8 * descents * ELITES)))
    children = max(1, budget // (2 * descents * rounds * ELITES))
    for i, elite in enumerate(worst[:DESCENTS]):
        step = 0.5
        for _ in range(rounds):
            parents = elite[1]
            copies = parents.select(torch.arange(len(parents)).repeat_interleave(children))
            offspring = space.perturb(copies, rng, step)
            offspring = offspring.select(space.contains(offspring))
            before = elite[0][0]
            if len(offspring):
                elite = _best(elite, look(offspring), offspring, ELITES)
            step *= 1.3 if elite[0][0] < before else 0.6
        worst[i] = elite
    worst.sort(key=lambda elite: float(elite[0][0]))

    counterexample = None
    unverified = False
    for values, problems in worst:
        found = violation(scope, problems, device)
        if bool(found.isfinite().any()):
            counterexample = shrink(scope, problems.select(found.argmin()[None]), rng, device)
            break
        unverified = unverified or (values.min() < 0 and _fails_to_verify(scope, problems, device))
    return SearchOutcome(lowest, its_error, instances, invalid, undecided, counterexample, unverified)


def _fails_to_verify(scope: Scope, problems: Problems, device: str) -> bool:
    """Whether a margin that is negative beyond its error fails to compute at a hundredth of the accuracy."""
    m = margins(scope, problems, scope.accuracy, device)
    negative = problems.select(m.value < -m.error)
    return len(negative) > 0 and bool(margins(scope, negative, scope.accuracy / 100, device).value.isnan().any())


def _best(
    elite: tuple[np.ndarray, Problems] | None, values: np.ndarray, problems: Problems, k: int
) -> tuple[np.ndarray, Problems]:
    if elite is not None:
        values = np.concatenate([elite[0], values])
        problems = Problems(problems.dims, {n: torch.cat([elite[1][n], x]) for n, x in problems.fields.items()})
    order = np.argsort(values, kind="stable")[:k]
    return values[order], problems.select(torch.from_numpy(order))


def shrink(scope: Scope, problem: Problems, rng: Rng, device: str = "cpu") -> Problems:
    """Make a verified counterexample small: fewer dimensions first, then few significant digits, then zeros and ones.

    Every step is kept only if the result is verified again, so what is returned is a counterexample.
    """
    problem = _strengthen(scope, _drop_dimensions(scope, problem, rng, device), rng, device)
    for digits in (1, 2, 3, 4, 6):
        rounded = _round(scope, problem, digits, device)
        if rounded is not None:
            return _simplify(scope, rounded, device)
    return problem


def _drop_dimensions(scope: Scope, problem: Problems, rng: Rng, device: str) -> Problems:
    space = scope.space
    assert space is not None
    progress = True
    while progress:
        progress = False
        for letter in sorted(space.dims):
            size = problem.dims[letter]
            if size <= min(space.dims[letter]):
                continue
            smaller = _cloud(space, _join([_without(space, problem, letter, i) for i in range(size)]), rng)
            found = violation(scope, smaller, device)
            if bool(found.isfinite().any()):
                problem, progress = smaller.select(found.argmin()[None]), True
    return problem


def _join(batches: list[Problems]) -> Problems:
    return Problems(batches[0].dims, {n: torch.cat([b[n] for b in batches]) for n in batches[0].fields})


def _cloud(space: ProblemSpace, problems: Problems, rng: Rng, copies: int = 24) -> Problems:
    """The problems and random neighbours of each, so that a violation lost by a cut may be found again close by."""
    many = problems.select(torch.arange(len(problems)).repeat_interleave(copies))
    return _join([problems, *(space.perturb(many, rng, step) for step in (0.1, 0.3, 1.0))])


def _strengthen(
    scope: Scope, problem: Problems, rng: Rng, device: str, rounds: int = 10, children: int = 32
) -> Problems:
    """Walk to a stronger violation, so that rounding has room."""
    assert scope.space is not None
    best = float(violation(scope, problem, device)[0])
    step = 0.3
    for _ in range(rounds):
        copies = problem.select(torch.zeros(children, dtype=torch.long))
        offspring = scope.space.perturb(copies, rng, step)
        values = violation(scope, offspring, device)
        if float(values.min()) < best:
            best, problem = float(values.min()), offspring.select(values.argmin()[None])
            step *= 1.2
        else:
            step *= 0.7
    return problem


def _without(space: ProblemSpace, problem: Problems, letter: str, index: int) -> Problems:
    fields = {}
    for name, kind in space.fields.items():
        x = problem[name].numpy()
        for axis, a in enumerate(kind.axes):
            if a == letter:
                x = np.delete(x, index, axis=axis + 1)
        fields[name] = x
    return space.batch(fields, dict(problem.dims) | {letter: problem.dims[letter] - 1})


Group = tuple[tuple[int, ...], ...]


def _entries(space: ProblemSpace, problem: Problems) -> Iterator[tuple[str, Group]]:
    for name, kind in space.fields.items():
        for group in kind.groups(tuple(problem[name].shape[1:])):
            yield name, group


def _with_entry(problem: Problems, name: str, group: Group, value: float) -> Problems:
    x = problem[name].clone()
    for index in group:
        x[(0, *index)] = value
    return Problems(problem.dims, {**problem.fields, name: x})


def significant(x: float, digits: int) -> float:
    """``x`` rounded to so many significant digits."""
    return float(f"{x:.{digits - 1}e}") if np.isfinite(x) else x


def _round(scope: Scope, problem: Problems, digits: int, device: str) -> Problems | None:
    """Round all entries at once, else one by one, each to the neighbour (of three) that keeps the violation strongest.

    None if an entry cannot be rounded without losing the violation.
    """
    assert scope.space is not None
    entries = list(_entries(scope.space, problem))
    everything = problem
    for name, group in entries:
        everything = _with_entry(everything, name, group, significant(float(problem[name][(0, *group[0])]), digits))
    if bool(violation(scope, everything, device).isfinite()[0]):
        return everything
    for name, group in entries:
        x = float(problem[name][(0, *group[0])])
        if x == significant(x, digits):
            continue
        unit = 10.0 ** (np.floor(np.log10(abs(x))) - digits + 1)
        near = _join([_with_entry(problem, name, group, significant(x + k * unit, digits)) for k in (0, -1, 1)])
        values = violation(scope, near, device)
        if not bool(values.isfinite().any()):
            return None
        problem = near.select(values.argmin()[None])
    return problem


def _simplify(scope: Scope, problem: Problems, device: str) -> Problems:
    """Set each entry to 0, else ±1, else one digit, where the violation survives."""
    assert scope.space is not None
    for name, group in _entries(scope.space, problem):
        x = float(problem[name][(0, *group[0])])
        simpler = list(dict.fromkeys([0.0, float(np.sign(x)), significant(x, 1)]))
        simpler = simpler[: simpler.index(x)] if x in simpler else simpler
        if not simpler:
            continue
        candidates = _join([_with_entry(problem, name, group, value) for value in simpler])
        survives = torch.nonzero(violation(scope, candidates, device).isfinite())[:, 0]
        if len(survives):
            problem = candidates.select(survives[:1])
    return problem
