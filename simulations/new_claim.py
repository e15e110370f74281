"""``scalevec new-claim``: a claim file and its test, to start from."""

from __future__ import annotations

import keyword
import re
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template

from simulations.store import write_text


def write_claim(name: str, folder: Path) -> tuple[Path, Path]:
    """Write ``my_idea.py`` and ``test_my_idea.py`` for the claim ``my-idea``; both or neither.

    Raises
    ------
    ValueError : not a claim's name, a file of that name exists, or a module does that the file would hide or be
        taken for.
    OSError : the folder cannot be written.
    """
    module = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) or keyword.iskeyword(module):
        raise ValueError(f"name={name!r}: expected lower-case words joined by hyphens, such as my-idea")
    paths = folder / f"{module}.py", folder / f"test_{module}.py"
    for path in paths:
        if path.exists():
            raise ValueError(f"{path} exists; choose another name")
    for known in (module, f"scalevec_theory.theorems.{module}"):
        if find_spec(known) is not None:
            raise ValueError(f"name={name!r}: a module {known} exists; choose another name")
    templates = files("simulations") / "templates"
    claim, test = (
        Template((templates / f"{kind}.py.template").read_text(encoding="utf-8")).substitute(name=name, module=module)
        for kind in ("claim", "test")
    )
    write_text(paths[0], claim)
    try:
        write_text(paths[1], test)
    except OSError:
        paths[0].unlink()
        raise
    return paths
