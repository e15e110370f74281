"""One module per figure: `compute` makes the numbers, `draw` the picture."""

from __future__ import annotations

import pkgutil

NOT_FIGURES = {"bands", "costs", "forest", "strips", "style"}


def available() -> dict[str, str]:
    """Every figure's name and the module that draws it; figure ``early-gap`` is module ``early_gap``."""
    modules = sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name not in NOT_FIGURES)
    return {name.replace("_", "-"): f"{__name__}.{name}" for name in modules}
