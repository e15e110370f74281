"""Commands in places that do not serve them: ``python benchmarks/hostile.py`` (as root on Linux, for the mounts).

Every command is started in a full disk, in a folder that cannot be written, without a home folder, without a network,
and with less and less memory.  Without home or network it must end as it does elsewhere; in the other places it must
end with status 0, or in one line ("scalevec: error: ...") and status 2, without a traceback, within the time it has,
and leave no half-written file.  Exit status 1 if one does not.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from simulations.memory import NEEDED

STUDY = "def measure(x):\n    return float(x)\n"
TINY = (
    "width=16",
    "layers=1",
    "heads=1",
    "hidden=16",
    "steps=20",
    "batch=4",
    "length=16",
    "held_out=2",
    "data=markov:8",
)
COMMANDS = {
    "claims": "claims",
    "check": "check conservation:any-loss loss-dominance:correlated-inputs multiplier-gradient --jobs 2 --json c.json",
    "falsify": "falsify dual-placement --scope whole-trajectory --budget 4000",
    "figures": "figures product-form --jobs 1",
    "report": "report product-form --jobs 2",
    "discover": "discover dual-scale --dims c=1,d=2",
    "equilibrium": "equilibrium --optimizer adamw --lr 3e-3 --weight-decay 0.1 --steps 200",
    "new-claim": "new-claim my-claim",
    "train": "train llama " + " ".join(f"--set {s}" for s in TINY),
    "sweep": "sweep study.py:measure --grid x=0:6 --jobs 2 --export study.csv",
    "audit": "audit llama --json audit.json",
    "experiment": "experiment symmetry --jobs 2 --json symmetry.json",
}
MEMORY = (8.0, 4.0, 2.0, NEEDED, 1.0, 0.5, 0.25)
"""GiB of address space."""
SECONDS = 180.0


def command_line(name: str) -> list[str]:
    return [sys.executable, "-m", "simulations.cli", *COMMANDS[name].split()]


def run(
    name: str, folder: Path, *, before: Callable[[], None] | None = None, wrapper: tuple[str, ...] = (), **changes: str
) -> subprocess.CompletedProcess[str]:
    environment = {key: x for key, x in {**os.environ, **changes}.items() if x}
    words = [*wrapper, *command_line(name)]
    return subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=SECONDS, env=environment, preexec_fn=before
    )


@contextmanager
def folder(options: str | None = None) -> Iterator[Path]:
    """An empty folder with the sweep's file in it; with options, one that is mounted with them."""
    with tempfile.TemporaryDirectory() as name:
        if options is None:
            (Path(name) / "study.py").write_text(STUDY)
            yield Path(name)
            return
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", name], check=True)
        try:
            (Path(name) / "study.py").write_text(STUDY)
            subprocess.run(["mount", "-o", f"remount,{options}", name], check=True)
            yield Path(name)
        finally:
            subprocess.run(["umount", "--lazy", name], check=True)


def fill(place: Path) -> None:
    """Write until nothing more fits."""
    try:
        with (place / "filling").open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
    except OSError:
        pass


def wrong(found: subprocess.CompletedProcess[str], place: Path, must_work: bool) -> str | None:
    if "Traceback" in found.stderr:
        return "a traceback: " + found.stderr.strip().splitlines()[-1]
    if found.returncode != 0 and must_work:
        return f"status {found.returncode}: {found.stderr.strip()[-200:]}"
    if found.returncode not in (0, 2):
        return f"status {found.returncode}: {found.stderr.strip()[-200:]}"
    if found.returncode == 2 and "scalevec: error:" not in found.stderr:
        return f"no line that says why: {found.stderr.strip()[-200:]}"
    if left := [p.name for p in place.rglob("*.tmp")]:
        return f"{left[0]} is left"
    return None


def conditions() -> Iterator[tuple[str, Callable[[str], str | None]]]:
    """What each place is called, and a function of a command's name that says what is wrong there."""

    def full(name: str) -> str | None:
        with folder("size=64k") as place:
            fill(place)
            return wrong(run(name, place), place, False)

    def read_only(name: str) -> str | None:
        with folder("ro") as place:
            return wrong(run(name, place), place, False)

    def no_home(name: str) -> str | None:
        with folder() as place:
            return wrong(run(name, place, HOME="/nonexistent", XDG_CACHE_HOME="", XDG_CONFIG_HOME=""), place, True)

    def no_network(name: str) -> str | None:
        with folder() as place:
            return wrong(run(name, place, wrapper=("unshare", "--net")), place, True)

    yield from (("full disk", full), ("read-only", read_only), ("no home", no_home), ("no network", no_network))
    for gib in MEMORY:
        limit = int(gib * 2**30)

        def little(name: str, limit: int = limit) -> str | None:
            with folder() as place:
                limited = run(name, place, before=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
                said = wrong(limited, place, False)
                if said is None and limited.returncode == 2 and "memory" not in limited.stderr:
                    return f"a reason that is not the memory: {limited.stderr.strip()[-200:]}"
                return said

        yield f"{gib:g} GiB", little


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commands", nargs="*", default=list(COMMANDS), choices=list(COMMANDS))
    parser.add_argument("--places", nargs="*", default=None)
    a = parser.parse_args()
    runs = faults = 0
    for place, attempt in conditions():
        if a.places is not None and place not in a.places:
            continue
        for name in a.commands:
            try:
                said = attempt(name)
            except subprocess.TimeoutExpired:
                said = f"more than {SECONDS:g} s"
            runs += 1
            if said is not None:
                faults += 1
                print(f"  {place}, {name}: {said}", file=sys.stderr, flush=True)
        print(f"{place}: {len(a.commands)} commands", flush=True)
    print(f"{runs} runs, {faults} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
