"""Where a result comes from: code, versions and machine."""

from __future__ import annotations

import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("scalevec", "numpy", "scipy", "torch", "numba", "sympy", "transformers")


def provenance() -> dict[str, str]:
    """The commit (with ``+`` where files differ from it), versions, interpreter, processor and cores."""
    from simulations.parallel import cores

    here = {"commit": _commit(), "processor": _processor(), "cores": str(cores())}
    return here | {name: found for name, found in versions(PACKAGES).items() if found is not None}


@cache
def versions(packages: tuple[str, ...]) -> dict[str, str | None]:
    """Versions of the interpreter and of packages; None for one that is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


@cache
def _commit() -> str:
    """As it is when a process first asks: that is nearest to the code it runs."""
    root = Path(__file__).parent.parent
    try:
        status = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--exclude=*", "--abbrev=12"],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return status.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
