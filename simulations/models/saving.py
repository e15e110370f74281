"""A model whose state dict its own class would not load as it is must not be saved as if it would."""

from __future__ import annotations

from typing import Any

from torch import nn

WRITERS = ("save_pretrained", "push_to_hub")


def forbid_saving(model: nn.Module, advice: str) -> None:
    """Make `save_pretrained` and `push_to_hub` of this model, its parts and its deep copies raise ValueError."""

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise ValueError(f"{type(model).__name__}: loaded into its own class this model would be another; {advice}")

    for module in model.modules():
        for name in WRITERS:
            if hasattr(type(module), name):
                module.__dict__[name] = refuse


def allow_saving(model: nn.Module) -> None:
    """Undo `forbid_saving`."""
    for module in model.modules():
        for name in WRITERS:
            module.__dict__.pop(name, None)
