"""Problem spaces: the assumptions of a scope as data, and batches of problems drawn from them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

FloatArray = np.ndarray
Rng = np.random.Generator


@dataclass(frozen=True)
class Problems:
    """A batch of B problems of one size: ``fields`` maps a name to a tensor ``(B, *shape)``; read ``problems["T"]``."""

    dims: Mapping[str, int]
    fields: Mapping[str, Tensor]

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.fields:
            raise KeyError(f"no field {name!r} in this problem space; it has {', '.join(self.fields)}")
        return self.fields[name]

    def __len__(self) -> int:
        return len(next(iter(self.fields.values())))

    def select(self, index: Tensor | slice) -> Problems:
        """The problems at a boolean mask, indices or a slice of the batch."""
        return Problems(self.dims, {k: x[index] for k, x in self.fields.items()})

    def to(self, device: torch.device | str) -> Problems:
        return Problems(self.dims, {k: x.to(device) for k, x in self.fields.items()})


@dataclass(frozen=True)
class Field:
    """One ingredient of a problem: ``axes`` names its dimensions by letter (``"cd"``; ``""`` for a number).

    A kind of field is a subclass that says how standard normal latents become values (`decode`) and which values
    belong to it (`contains`); everything else follows from these two.
    """

    axes: str

    def shape(self, dims: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(dims[a] for a in self.axes)

    def latent_shape(self, dims: Mapping[str, int]) -> tuple[int, ...]:
        """Shape of the standard normal numbers that `decode` turns into one value."""
        return self.shape(dims)

    def decode(self, z: FloatArray, dims: Mapping[str, int]) -> FloatArray:
        """Values ``(B, *shape)`` from latents ``(B, *latent_shape)``."""
        raise NotImplementedError

    def contains(self, x: FloatArray) -> FloatArray:
        """Which of the values ``(B, *shape)`` belong to the field, boolean ``(B,)``."""
        raise NotImplementedError

    def perturb(self, x: FloatArray, rng: Rng, step: float) -> FloatArray:
        """A random neighbour of each value, at relative distance about ``step``."""
        size = np.abs(x).reshape(len(x), -1).mean(-1).reshape(-1, *([1] * (x.ndim - 1)))
        return x + step * (0.7 * np.abs(x) + 0.3 * size) * rng.standard_normal(x.shape)

    def groups(self, shape: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], ...]]:
        """Entries that must be changed together when a value is simplified (both halves of a symmetric matrix)."""
        for index in np.ndindex(*shape):
            yield (index,)


def _check_interval(kind: Field, low: float, high: float) -> None:
    if not 0 < low < high < math.inf:
        raise ValueError(f"{type(kind).__name__}: low={low}, high={high}; expected 0 < low < high")


def _all(condition: FloatArray) -> FloatArray:
    return np.asarray(condition.reshape(len(condition), -1).all(-1))


@dataclass(frozen=True)
class Real(Field):
    """Real numbers of modulus at most 100 ``scale``, drawn normal with standard deviation ``scale``.

    The bound keeps a search for the worst case away from where only float64 overflows.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        """Raises ValueError for a scale that is not above 0."""
        if not 0 < self.scale < math.inf:
            raise ValueError(f"Real: scale={self.scale}; expected > 0 (exact zeros are Zero)")

    def decode(self, z: FloatArray, dims: Mapping[str, int]) -> FloatArray:
        return self.scale * z

    def contains(self, x: FloatArray) -> FloatArray:
        return _all(np.abs(x) <= 100 * self.scale)


@dataclass(frozen=True)
class Between(Field):
    """Positive numbers in [low, high], drawn log-uniformly for moderate latents."""

    low: float = 0.1
    high: float = 10.0

    def __post_init__(self) -> None:
        """Raises ValueError unless 0 < low < high."""
        _check_interval(self, self.low, self.high)

    def decode(self, z: FloatArray, dims: Mapping[str, int]) -> FloatArray:
        share = 0.5 * (1 + np.vectorize(math.erf, otypes=[float])(z / math.sqrt(2)))
        return self.low * (self.high / self.low) ** share

    def contains(self, x: FloatArray) -> FloatArray:
        return _all((x >= self.low) & (x <= self.high))


@dataclass(frozen=True)
class Zero(Field):
    """Exactly zero: the assumption W(0) = 0 as a field."""

    def latent_shape(self, dims: Mapping[str, int]) -> tuple[int, ...]:
        return (0,)

    def decode(self, z: FloatArray, dims: Mapping[str, int]) -> FloatArray:
        return np.zeros((len(z), *self.shape(dims)))

    def contains(self, x: FloatArray) -> FloatArray:
        return _all(x == 0)

    def perturb(self, x: FloatArray, rng: Rng, step: float) -> FloatArray:
        return x


class _SquareMatrix(Field):
    def _identity(self, dims: Mapping[str, int]) -> FloatArray:
        return np.eye(dims[self.axes[0]])


@dataclass(frozen=True)
class Identity(_SquareMatrix):
    """The identity matrix: whitened inputs, H = E[x xᵀ] = I."""

    def latent_shape(self, dims: Mapping[str, int]) -> tuple[int, ...]:
        return (0,)

    def decode(self, z: FloatArray, dims: Mapping[str, int]) -> FloatArray:
        return np.repeat(self._identity(dims)[None], len(z), axis=0)

    def contains(self, x: FloatArray) -> FloatArray:
        return _all(x == np.eye(x.shape[-1]))

    def perturb(self, x: FloatArray, rng: Rng, step: float) -> FloatArray:
        return x

    def groups(self, shape: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], ...]]:
        return iter(())


@dataclass(frozen=True)
class Diagonal(_SquareMatrix):
    """Diagonal positive matrices with entries in [low, high]: uncorrelated inputs."""

    low: float = 0.1
    high: float = 10.0

    def __post_init__(self) -> None:
        """Raises ValueError unless 0 < low < high."""
        _check_interval(self, self.low, self.high)

    def latent_shape(self, dims: Mapping[str, int]) -> tuple[int, ...]:
        return (dims[self.axes[0]],)

    def decode(self, z: FloatArray, dims: Mapping[str, int]) -> FloatArray:
        return Between("", self.low, self.high).decode(z, dims)[..., None] * self._identity(dims)

    def contains(self, x: FloatArray) -> FloatArray:
        diagonal = np.diagonal(x, axis1=-2, axis2=-1)
        return _all((diagonal >= self.low) & (diagonal <= self.high)) & _all(
            x == diagonal[..., None] * np.eye(x.shape[-1])
        )

    def perturb(self, x: FloatArray, rng: Rng, step: float) -> FloatArray:
        diagonal = np.diagonal(x, axis1=-2, axis2=-1)
        return super().perturb(diagonal, rng, step)[..., None] * np.eye(x.shape[-1])

    def groups(self, shape: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], ...]]:
        for i in range(shape[0]):
            yield ((i, i),)


@dataclass(frozen=True)
class PositiveDefinite(_SquareMatrix):
    """Symmetric matrices with eigenvalues in [low, high]: correlated inputs, H = E[x xᵀ]."""

    low: float = 0.03
    high: float = 100.0

    def __post_init__(self) -> None:
        """Raises ValueError unless 0 < low < high."""
        _check_interval(self, self.low, self.high)

    def decode(self, z: FloatArray, dims: Mapping[str, int]) -> FloatArray:
        eigenvalues, vectors = np.linalg.eigh(z @ np.swapaxes(z, -1, -2))
        eigenvalues = np.clip(eigenvalues, 1.001 * self.low, 0.999 * self.high)
        H = (vectors * eigenvalues[..., None, :]) @ np.swapaxes(vectors, -1, -2)
        return 0.5 * (H + np.swapaxes(H, -1, -2))

    def contains(self, x: FloatArray) -> FloatArray:
        symmetric = _all(x == np.swapaxes(x, -1, -2))
        eigenvalues = np.linalg.eigvalsh(np.where(np.isfinite(x), x, 0.0))
        return (
            symmetric & _all(np.isfinite(x)) & (eigenvalues[..., 0] >= self.low) & (eigenvalues[..., -1] <= self.high)
        )

    def perturb(self, x: FloatArray, rng: Rng, step: float) -> FloatArray:
        y = super().perturb(x, rng, step)
        return 0.5 * (y + np.swapaxes(y, -1, -2))

    def groups(self, shape: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], ...]]:
        for i in range(shape[0]):
            for j in range(i + 1):
                yield ((i, j), (j, i)) if i != j else ((i, i),)


@dataclass(frozen=True)
class Probabilities(Field):
    """Probability vectors along the last axis: soft targets of a cross-entropy."""

    def decode(self, z: FloatArray, dims: Mapping[str, int]) -> FloatArray:
        e = np.exp(2 * (z - z.max(-1, keepdims=True)))
        return e / e.sum(-1, keepdims=True)

    def contains(self, x: FloatArray) -> FloatArray:
        return _all(x >= 0) & _all(np.abs(x.sum(-1) - 1) < 1e-12)

    def perturb(self, x: FloatArray, rng: Rng, step: float) -> FloatArray:
        y = np.abs(super().perturb(x, rng, step)) + 1e-300
        return y / y.sum(-1, keepdims=True)


@dataclass(frozen=True)
class ProblemSpace:
    """A set of problems: what is assumed, in words and as fields.

    Parameters
    ----------
    assumptions : the words, e.g. ``"uncorrelated inputs (H diagonal), W(0) = 0, squared loss"``.
    dims : sizes to draw for each axis letter, e.g. ``{"c": (1, 2, 3), "d": (1, 2, 4)}``; every whole number between
        the smallest and the largest belongs to the space.
    fields : name to `Field`.
    where : a further condition on a batch, boolean ``(B,)``, for assumptions that tie fields together.
    """

    assumptions: str
    dims: Mapping[str, tuple[int, ...]]
    fields: Mapping[str, Field]
    where: Callable[[Problems], Tensor] | None = None

    def __post_init__(self) -> None:
        for letter, sizes in self.dims.items():
            whole = isinstance(sizes, tuple | list | range) and all(type(size) is int and size >= 1 for size in sizes)
            if not sizes or not whole:
                raise ValueError(f"dims[{letter!r}]={sizes!r}: expected a tuple of one or more integers >= 1")
        for name, kind in self.fields.items():
            unknown = set(kind.axes) - set(self.dims)
            if unknown:
                raise ValueError(f"field {name!r} has axes {kind.axes!r}, but dims gives no size for {sorted(unknown)}")
        for letter in self.free_letters:
            if letter in self.fields:
                raise ValueError(
                    f"dims has {letter!r}, which is no field's axis but a field's name: rename one of them"
                )

    @property
    def free_letters(self) -> list[str]:
        """The letters of ``dims`` that are no field's axis: a problem's fields do not tell their sizes."""
        return sorted(set(self.dims) - set("".join(kind.axes for kind in self.fields.values())))

    def sizes(self) -> list[dict[str, int]]:
        """Every combination of the listed sizes."""
        return [dict(zip(self.dims, s, strict=True)) for s in itertools.product(*self.dims.values())]

    def draw(self, n: int, dims: Mapping[str, int], rng: Rng) -> Problems:
        """``n`` random problems of one size, whose overall magnitudes vary by a factor of about ten."""
        magnitude = np.exp(rng.uniform(-1.5, 0.8, size=n))
        fields = {}
        for name, kind in self.fields.items():
            z = rng.standard_normal((n, *kind.latent_shape(dims)))
            z = z * magnitude.reshape(-1, *([1] * (z.ndim - 1)))
            fields[name] = kind.decode(z, dims)
        return self.batch(fields, dims)

    def perturb(self, problems: Problems, rng: Rng, step: float) -> Problems:
        """A random neighbour of every problem; it may lie outside the space (ask `contains`)."""
        return self.batch({k: f.perturb(problems[k].numpy(), rng, step) for k, f in self.fields.items()}, problems.dims)

    def contains(self, problems: Problems) -> Tensor:
        """Which problems satisfy every assumption, boolean ``(B,)``."""
        inside = np.ones(len(problems), dtype=bool)
        for letter, sizes in self.dims.items():
            inside &= min(sizes) <= problems.dims[letter] <= max(sizes)
        for name, kind in self.fields.items():
            inside &= kind.contains(problems[name].cpu().numpy())
        result = torch.from_numpy(inside)
        return result & self.where(problems).cpu() if self.where is not None else result

    def batch(self, fields: Mapping[str, FloatArray], dims: Mapping[str, int]) -> Problems:
        """Float64 problems from arrays ``(B, *shape)``."""
        return Problems(dict(dims), {k: torch.from_numpy(np.asarray(x, dtype=np.float64)) for k, x in fields.items()})

    def problem(self, values: Mapping[str, object]) -> Problems:
        """A batch of one problem from plain numbers and nested lists, sizes read off the shapes.

        A size that no shape tells (`free_letters`) is given beside the fields, or is the first one listed.

        Raises
        ------
        ValueError : a field is missing or unknown, a shape or size does not fit, or an assumption is violated.
        """
        free = {letter: values[letter] for letter in self.free_letters if letter in values}
        if set(values) - set(free) != set(self.fields):
            raise ValueError(f"fields {sorted(values)} given, this problem space has {sorted(self.fields)}")
        dims: dict[str, int] = {}
        for letter, size in free.items():
            if not isinstance(size, int):
                raise ValueError(f"{letter}={size!r}: expected a whole number")
            dims[letter] = size
        arrays = {}
        for name, kind in self.fields.items():
            x = np.asarray(values[name], dtype=np.float64)
            if x.ndim != len(kind.axes):
                raise ValueError(f"{name} has shape {x.shape}, expected axes {kind.axes!r}")
            for letter, size in zip(kind.axes, x.shape, strict=True):
                if dims.setdefault(letter, size) != size:
                    raise ValueError(f"{name} has shape {x.shape}, but {letter}={dims[letter]} elsewhere")
            arrays[name] = x[None]
        for letter, sizes in self.dims.items():
            dims.setdefault(letter, sizes[0])
        problems = self.batch(arrays, dims)
        if not bool(self.contains(problems)[0]):
            raise ValueError(f"the problem violates the assumptions of its space: {self.assumptions}")
        return problems
