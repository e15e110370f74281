"""Models on the meta device, and what building them in earnest would take."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook

MODULES = 400_000
"""More than the largest published model has, of 2,048 experts a layer; beyond it a size is a slip of the pen."""


def outline(build: Callable[[], nn.Module]) -> nn.Module:
    """The model that ``build`` makes, on the meta device, where parameters have shapes and take no memory.

    Raises
    ------
    ValueError : it has more than `MODULES` modules, or sizes that torch cannot count.
    """
    count = 0

    def registered(*_: Any) -> None:
        nonlocal count
        count += 1
        if count > MODULES:
            raise ValueError(f"more than {MODULES:,} modules; expected fewer layers or experts")

    handle = register_module_module_registration_hook(registered)
    try:
        with torch.device("meta"):
            return build()
    except (RuntimeError, TypeError, OverflowError) as error:  # as torch says it of sizes beyond 64 bits
        raise ValueError(f"no model of these sizes can be built: {' '.join(str(error).split())[:200]}") from error
    finally:
        handle.remove()


def check_memory(model: nn.Module, copies: int, advice: str) -> None:
    """That this machine holds a model so many times over, in the precision of its parameters.

    Parameters
    ----------
    model : of which shapes and types count; it may be on the meta device.
    advice : what can be done, for the message.

    Raises
    ------
    ValueError : it does not.
    """
    needed, there = copies * sum(p.numel() * p.element_size() for p in model.parameters()), memory()
    if needed > there:
        raise ValueError(
            f"{sum(p.numel() for p in model.parameters()):,} parameters need {needed / 2**30:,.0f} GiB of memory, of "
            f"{there / 2**30:,.0f} GiB; expected {advice}"
        )


def memory() -> int:
    """Bytes of this machine's memory, or of what this process may have of it."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return physical if limit == resource.RLIM_INFINITY else min(physical, limit)
