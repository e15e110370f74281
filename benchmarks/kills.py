"""Real commands, killed at random moments and given again: ``python benchmarks/kills.py [--runs 500] [--seed 0]``.

Each run starts a fresh process of one command in a new folder, ends it after a random part of its usual time (Ctrl-C to
the process group, as a terminal does; SIGTERM or SIGKILL to the main process), waits until nothing of it is left, looks
at what it wrote, and gives the command again.  Faults: a process that stays for more than 15 seconds; a file that is
not whole; a finished result that is gone or is computed again; a second run that fails, or ends with other results
than a run that was not disturbed.  Exit status 1 if there is a fault; Ctrl-C prints what was found so far.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from simulations.runs import RunStore

STUDY = """
import numpy as np


def measure(x):
    with open("log", "a") as log:
        log.write(f"{x}\\n")
    a = np.random.default_rng(x).standard_normal((700, 700))
    return float(np.linalg.eigvalsh(a @ a.T)[-1])
"""
TINY = {
    "width": "16",
    "layers": "1",
    "heads": "1",
    "hidden": "16",
    "steps": "60",
    "batch": "4",
    "length": "16",
    "evaluations": "6",
    "held_out": "2",
    "data": "markov:8",
}
COMMANDS = {
    "check": ["check", "growth-test:brownian", "product-form", "multiplier-gradient", "--jobs", "2"],
    "sweep": ["sweep", "study.py:measure", "--grid", "x=0:12", "--jobs", "2"],
    "train": ["train", "llama", *(word for key, x in TINY.items() for word in ("--set", f"{key}={x}"))],
    "figures": ["figures", "product-form", "absorption", "--jobs", "2"],
    "simulate": ["sweep", "equilibrium", "--grid", "lr=1e-3,3e-3,1e-2", "--grid", "weight_decay=0.1,1", "--jobs", "1"],
}
SIGNALS = {"Ctrl-C": signal.SIGINT, "SIGTERM": signal.SIGTERM, "SIGKILL": signal.SIGKILL}


def start(command: str, folder: Path) -> subprocess.Popen[bytes]:
    (folder / "study.py").write_text(STUDY)
    with (folder / "said").open("ab") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "simulations.cli", *COMMANDS[command]],
            cwd=folder,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )


def left_over(group: int) -> bool:
    """Whether a process of the group still runs."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def results(folder: Path) -> dict[str, str]:
    """A digest of what every finished file says, times and provenance left out.

    Raises
    ------
    ValueError : a file is not whole.
    """
    found = {}
    for path in sorted((folder / "results").rglob("*")):
        if path.is_dir() or path.name.startswith(".") or path.suffix == ".checkpoint":
            continue
        if path.suffix == ".json":
            result = json.loads(path.read_text())["result"]
            content = json.dumps({k: v for k, v in result.items() if k != "seconds"}).encode()
        elif path.suffix == ".nc":
            run = RunStore(path.parent).get(path.stem)
            if run is None:
                raise ValueError(f"{path.name} is not whole")
            content = b"".join(np.ascontiguousarray(run[name].values).tobytes() for name in sorted(run.data_vars))
        else:
            content = path.read_bytes()
            if path.suffix == ".svg":
                ElementTree.fromstring(content)
            elif not content.endswith(b"IEND\xaeB`\x82"):
                raise ValueError(f"{path.name} is not whole")
        found[str(path.relative_to(folder))] = hashlib.sha256(content).hexdigest()
    return found


def times(folder: Path) -> dict[str, int]:
    """When each finished file was written."""
    return {str(p): p.stat().st_mtime_ns for p in (folder / "results").rglob("*") if p.suffix in (".json", ".nc")}


def one(command: str, how: str, usual: float, reference: dict[str, str], rng: random.Random) -> str | None:
    """What is wrong with one killed run; None if nothing is."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        process = start(command, folder)
        time.sleep(rng.random() * usual)
        try:
            if how == "Ctrl-C":
                os.killpg(process.pid, SIGNALS[how])
            else:
                process.send_signal(SIGNALS[how])
        except ProcessLookupError:
            pass
        process.wait(15)
        deadline = time.monotonic() + 15
        while left_over(process.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        if left_over(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
            return "a process stays"
        said = (folder / "said").read_text()
        if "Traceback" in said and "interrupted" in said:  # before the command has begun, Python itself reports Ctrl-C
            return f"a traceback: {said.strip().splitlines()[-1]}"
        before, written = results(folder), times(folder)
        if any(reference.get(k) != v for k, v in before.items()):
            return "a result of the killed run is another"
        again = start(command, folder)
        if again.wait(300) != 0:
            return f"given again it ends with {again.returncode}: {(folder / 'said').read_text().splitlines()[-1]}"
        if results(folder) != reference:
            return "given again it finds something else"
        now = times(folder)
        if any(now.get(path) != when for path, when in written.items()):
            return "what was finished was done again"
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    logging.getLogger("scalevec").setLevel(logging.CRITICAL)
    usual, reference = {}, {}
    for command in COMMANDS:
        with tempfile.TemporaryDirectory() as name:
            begun = time.monotonic()
            if start(command, Path(name)).wait() != 0:
                sys.exit(f"{command} fails undisturbed: {(Path(name) / 'said').read_text()}")
            usual[command], reference[command] = time.monotonic() - begun, results(Path(name))
    done: Counter[tuple[str, str]] = Counter()
    faults: Counter[tuple[str, str]] = Counter()
    kinds = [(command, how) for command in COMMANDS for how in SIGNALS]
    try:
        for i in range(a.runs):
            command, how = kinds[i % len(kinds)]
            rng = random.Random(f"{a.seed} {i}")
            try:
                wrong = one(command, how, usual[command], reference[command], rng)
            except (ValueError, KeyError, ElementTree.ParseError, subprocess.TimeoutExpired) as error:
                wrong = f"{type(error).__name__}: {error}"
            done[command, how] += 1
            if wrong is not None:
                faults[command, how] += 1
                print(f"  run {i}, {command}, {how}: {wrong}", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        pass
    print(f"{'killed':12}" + "".join(f"{how:>16}" for how in SIGNALS))
    for command in COMMANDS:
        cells = (f"{done[command, how]} ({faults[command, how]} faults)" for how in SIGNALS)
        print(f"{command:12}" + "".join(f"{cell:>16}" for cell in cells))
    print(f"{sum(done.values())} runs, {sum(faults.values())} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
