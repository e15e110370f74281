"""Running a model on an example: what an example is, evaluation mode, and examples for language models."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

Example: TypeAlias = Tensor | tuple[Any, ...] | list[Any] | Mapping[str, Any]

LENGTH = 24
"""Tokens of each sequence of an example made here."""


def call(model: nn.Module, example: Example) -> Any:
    """Call the model on a tensor (one argument), a tuple or list (positional) or a mapping (keyword arguments)."""
    if isinstance(example, Mapping):
        return model(**example)
    return model(*example) if isinstance(example, tuple | list) else model(example)


def run(model: nn.Module, example: Example) -> Any:
    """`call`, for the first time, with nothing compiled: what is seen are the model's own operations.

    Raises
    ------
    ValueError : the model raised an error, of any type; its text is part of the message.
    """
    # Without this module, whose import takes a second, nothing has been compiled.
    compiled = "torch._dynamo" in sys.modules
    try:
        with torch.compiler.set_stance("force_eager") if compiled else contextlib.nullcontext():
            return call(model, example)
    except Exception as error:
        raise ValueError(f"example: {type(model).__name__} does not run on it: {one_line(error)}") from error


def one_line(error: BaseException) -> str:
    """An error's type and text on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def copied(module: nn.Module) -> nn.Module:
    """A deep copy.

    Raises
    ------
    ValueError : the module cannot be copied, such as one that keeps a tensor of its last training step.
    """
    try:
        return copy.deepcopy(module)
    except Exception as error:
        raise ValueError(f"{type(module).__name__}: it cannot be copied: {one_line(error)}") from error


def tensors_in(value: object) -> list[Tensor]:
    """All tensors in what a model returns: in sequences and mappings of any type, and in the fields of objects."""
    found: list[Tensor] = []
    seen: dict[int, object] = {}
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Tensor):
            found.append(part)
        elif id(part) not in seen:
            seen[id(part)] = part
            waiting += reversed(_parts(part))
    return found


def _parts(value: object) -> list[object]:
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, tuple | list | set | frozenset | deque):
        return list(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    return [] if callable(value) else list(getattr(value, "__dict__", {}).values())


@contextlib.contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Evaluation mode (dropout would hide linearity), module by module given back at the end."""
    training = [m for m in model.modules() if m.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def example_input(model: nn.Module, *, batch: int = 2, length: int = LENGTH, seed: int = 0) -> dict[str, Any]:
    """Token numbers ``(batch, length)`` for a language model of `transformers`, as its keyword arguments.

    A model of encoder and decoder is given other ones to decode.

    Raises
    ------
    ValueError : the model has no input embedding of tokens.
    """
    try:
        vocabulary = model.get_input_embeddings().num_embeddings  # type: ignore[operator]
    except (AttributeError, NotImplementedError):
        raise ValueError(
            f"example=None: {type(model).__name__} is no language model of transformers; expected an example input"
        ) from None
    special = min(3, vocabulary - 1)
    generator = torch.Generator().manual_seed(seed)
    given = ["input_ids"]
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        given.append("decoder_input_ids")
    device = next(model.parameters()).device
    tokens = {n: torch.randint(special, vocabulary, (batch, length), generator=generator).to(device) for n in given}
    return tokens | {"use_cache": False}
