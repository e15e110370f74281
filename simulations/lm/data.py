"""What the lab's models read: text, token files, and a source whose entropy rate is known.

A batch is a function of (seed, step), so that runs with one seed read the same tokens in the same order whatever the
model, and a run that is resumed goes on as if it had not been stopped.
"""

from __future__ import annotations

import hashlib
import sysconfig
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

HELD_OUT = 20
"""Every so many files of a corpus one is held out."""

BYTES = 256


class Source(ABC):
    """A stream of tokens.

    Attributes
    ----------
    name : as given on the command line.
    vocabulary : how many different tokens there are.
    fingerprint : hash of everything that determines the tokens.
    entropy : nats per token that no model can fall below, given the past; None where it is not known.
    """

    name: str
    vocabulary: int
    fingerprint: str
    entropy: float | None = None

    def least_loss(self, length: int) -> float | None:
        """The least mean loss that is possible on batches of this length, in nats per token, where it is known."""
        return None

    @abstractmethod
    def sequences(self, rng: np.random.Generator, count: int, length: int, held_out: bool) -> np.ndarray:
        """``count`` sequences of ``length`` tokens, ``(count, length)``."""

    def batch(self, seed: int, step: int, count: int, length: int, held_out: bool = False) -> tuple[Tensor, Tensor]:
        """Inputs and targets ``(count, length)``: the targets are the tokens that follow."""
        rng = np.random.default_rng([seed, step, int(held_out)])
        tokens = torch.from_numpy(self.sequences(rng, count, length + 1, held_out).astype(np.int64))
        return tokens[:, :-1], tokens[:, 1:]


class Corpus(Source):
    """Windows at random places of one long text of training tokens, or of the held-out one."""

    def __init__(self, name: str, vocabulary: int, train: np.ndarray, held_out: np.ndarray) -> None:
        self.name, self.vocabulary = name, vocabulary
        self.train, self.held_out = train, held_out
        self.fingerprint = hashlib.sha256(train.tobytes() + b"|" + held_out.tobytes()).hexdigest()[:16]

    def sequences(self, rng: np.random.Generator, count: int, length: int, held_out: bool) -> np.ndarray:
        text = self.held_out if held_out else self.train
        if len(text) < length:
            part = "held out" if held_out else "to train on"
            raise ValueError(f"length={length - 1}: expected fewer than the {len(text)} tokens {part} of {self.name}")
        start = rng.integers(0, len(text) - length + 1, count)
        return text[start[:, None] + np.arange(length)]


class Markov(Source):
    """A random Markov chain of second order; the entropy rate is that of its transitions in the stationary state.

    Each row of transition probabilities is drawn from a Dirichlet law of this concentration: the smaller, the more
    predictable.
    """

    entropy: float

    def __init__(self, vocabulary: int = 32, concentration: float = 0.1, seed: int = 0) -> None:
        self.name, self.vocabulary = f"markov:{vocabulary}", vocabulary
        rng = np.random.default_rng([seed, vocabulary])
        law = rng.dirichlet(np.full(vocabulary, concentration), (vocabulary, vocabulary))
        self.law = (law + 1e-6) / (law + 1e-6).sum(-1, keepdims=True)  # every state is reached
        self.stationary = _stationary(self.law)
        self.cumulative = self.law.cumsum(-1)
        self.entropy = float(-(self.stationary[..., None] * self.law * np.log(self.law)).sum())
        self.fingerprint = hashlib.sha256(self.law.tobytes()).hexdigest()[:16]

    def least_loss(self, length: int) -> float:
        """Above the entropy rate, as the first target of a sequence has one token before it instead of two."""
        after_one = self.stationary / self.stationary.sum(1, keepdims=True)
        first = -float((self.stationary * np.log(after_one)).sum())
        return (first + (length - 1) * self.entropy) / length

    def sequences(self, rng: np.random.Generator, count: int, length: int, held_out: bool) -> np.ndarray:
        first = rng.choice(self.vocabulary**2, count, p=self.stationary.ravel())
        tokens = np.empty((count, length + 1), np.int64)
        tokens[:, 0], tokens[:, 1] = np.divmod(first, self.vocabulary)
        uniform = rng.random((count, length))
        for t in range(2, length + 1):
            rows = self.cumulative[tokens[:, t - 2], tokens[:, t - 1]]
            tokens[:, t] = (uniform[:, t - 2, None] > rows[:, :-1]).sum(-1)
        return tokens[:, :length]


def is_path(name: str) -> bool:
    """Whether a source's name is that of a file or folder, where other text may come to stand."""
    return name != "stdlib" and not name.startswith("markov")


def _stationary(law: np.ndarray) -> np.ndarray:
    """The stationary probabilities of pairs of successive tokens ``(V, V)``."""
    pairs = np.full(law.shape[:2], 1 / law.shape[0] ** 2)
    for _ in range(10_000):
        after = np.einsum("ab,abc->bc", pairs, law)
        if np.abs(after - pairs).sum() < 1e-14:
            break
        pairs = after
    return after


@cache
def find_source(name: str) -> Source:
    """The source of a name.

    ``stdlib`` : the source text of the Python that runs, by bytes; ``markov:V`` : a Markov chain of V tokens; a folder
    of text files, by bytes; a folder with ``train.bin`` and ``val.bin`` of 16-bit token numbers; one text file, whose
    last twentieth is held out.

    Raises
    ------
    ValueError : none of these, or no text.
    """
    if name == "stdlib":
        folder = Path(sysconfig.get_path("stdlib"))
        files = (f for f in folder.rglob("*.py") if not {"site-packages", "dist-packages", "test"} & set(f.parts))
        return _by_file(name, sorted(files))
    if name.startswith("markov"):
        size = name.removeprefix("markov").removeprefix(":") or "32"
        if not size.isdecimal() or not 2 <= int(size) <= 256:
            raise ValueError(f"data={name!r}: expected markov:V with V from 2 to 256")
        return Markov(int(size))
    expected = "expected stdlib, markov:V, a text file, or a folder of text or of .bin files"
    if not name:
        raise ValueError(f"data={name!r}: {expected}")
    path = Path(name)
    if path.suffix == ".bin" and path.is_file():
        raise ValueError(f"data={name!r}: expected the folder, with train.bin and val.bin in it")
    if (path / "train.bin").is_file() and (path / "val.bin").is_file():
        train, held_out = (np.fromfile(path / f, dtype=np.uint16) for f in ("train.bin", "val.bin"))
        for file, tokens in (("train.bin", train), ("val.bin", held_out)):
            if not len(tokens):
                raise ValueError(f"data={name!r}: {file} has no tokens; expected 16-bit numbers")
        return Corpus(name, int(max(train.max(), held_out.max())) + 1, train, held_out)
    if path.is_dir():
        return _by_file(name, sorted(f for f in path.rglob("*") if f.suffix in (".txt", ".md", ".py") and f.is_file()))
    if path.is_file():
        text = np.frombuffer(path.read_bytes(), np.uint8)
        end = len(text) - len(text) // HELD_OUT
        return Corpus(name, BYTES, text[:end], text[end:])
    raise ValueError(f"data={name!r}: {expected}")


def _by_file(name: str, files: list[Path]) -> Corpus:
    """Files in the order of their names, with a byte 0 after each."""

    def text(chosen: Iterator[Path]) -> np.ndarray:
        return np.frombuffer(b"".join(f.read_bytes() + b"\0" for f in chosen), np.uint8)

    if len(files) < 2:
        raise ValueError(f"data={name!r}: {len(files)} text files; expected two or more, to hold one out")
    every = min(HELD_OUT, len(files))
    train = text(f for i, f in enumerate(files) if i % every != every - 1)
    return Corpus(name, BYTES, train, text(f for i, f in enumerate(files) if i % every == every - 1))
