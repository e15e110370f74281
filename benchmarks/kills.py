"""Real commands, killed at random moments and given again: ``python benchmarks/kills.py [--kills 500] [--seed 0]``.

A life is one command in a new folder.  A fresh process of it is ended at a random moment of one and a half times the
usual time (Ctrl-C to the process group, as a terminal does; SIGTERM or SIGKILL to the main process), the command is
given again, killed again, and so on until it comes to its end by itself.  After every end, all that it wrote is looked
at.  Faults: a process that stays for more than 15 seconds; a file that is not whole; a finished result that is gone, is
another or is computed again; a run that fails, or ends with other results than one that was never disturbed.  Exit
status 1 if there is a fault; Ctrl-C prints what was found so far.
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
from contextlib import suppress
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
            names = sorted(map(str, run.data_vars))
            content = b"".join(np.ascontiguousarray(run[name].values).tobytes() for name in names)
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


def end(process: subprocess.Popen[bytes], how: str) -> bool:
    """Kill it; whether nothing of it is left 15 seconds later."""
    with suppress(ProcessLookupError):
        if how == "Ctrl-C":
            os.killpg(process.pid, SIGNALS[how])
        else:
            process.send_signal(SIGNALS[how])
    deadline = time.monotonic() + 15
    while (process.poll() is None or left_over(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    if left_over(process.pid):
        os.killpg(process.pid, signal.SIGKILL)
        return False
    return True


def look(folder: Path, reference: dict[str, str], before: dict[str, int]) -> dict[str, int]:
    """When each finished file was written.

    Raises
    ------
    ValueError : what is wrong with the folder, in which the files ``before`` were finished earlier.
    """
    if any(reference.get(k) != v for k, v in results(folder).items()):
        raise ValueError("a result is another")
    now = times(folder)
    if any(now.get(path) != when for path, when in before.items()):
        raise ValueError("what was finished is gone or was done again")
    return now


def live(command: str, usual: float, reference: dict[str, str], rng: random.Random, done: Counter[str]) -> None:
    """One life; counts its kills in ``done`` by signal.

    Raises
    ------
    ValueError : what is wrong.
    """
    with tempfile.TemporaryDirectory() as name:
        folder, written = Path(name), dict[str, int]()
        while True:
            process, how = start(command, folder), None
            try:
                process.wait(rng.random() * 1.5 * usual)
            except subprocess.TimeoutExpired:
                how = rng.choice(list(SIGNALS))
                if not end(process, how):
                    raise ValueError(f"a process stays after {how}") from None
            said = (folder / "said").read_text()
            (folder / "said").unlink()
            written = look(folder, reference, written)
            if process.returncode == 0:
                if results(folder) != reference:
                    raise ValueError("it finds less than an undisturbed run")
                return
            if how is None:
                raise ValueError(f"it ends with {process.returncode}: {said.splitlines()[-1]}")
            done[how] += 1
            if "Traceback" in said and "interrupted" in said:  # before it has begun, Python itself reports Ctrl-C
                raise ValueError(f"a traceback after {how}: {said.strip().splitlines()[-1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # started in the background it would be ignored by all
    logging.getLogger("scalevec").setLevel(logging.CRITICAL)
    usual, reference = {}, {}
    for command in COMMANDS:
        with tempfile.TemporaryDirectory() as name:
            begun = time.monotonic()
            if start(command, Path(name)).wait() != 0:
                sys.exit(f"{command} fails undisturbed: {(Path(name) / 'said').read_text()}")
            usual[command], reference[command] = time.monotonic() - begun, results(Path(name))
    done: dict[str, Counter[str]] = {command: Counter() for command in COMMANDS}
    lives, faults = 0, 0
    try:
        while sum(c.total() for c in done.values()) < a.kills:
            command = min(COMMANDS, key=lambda name: done[name].total())
            try:
                live(command, usual[command], reference[command], random.Random(f"{a.seed} {lives}"), done[command])
            except (ValueError, KeyError, OSError, ElementTree.ParseError) as error:
                faults += 1
                print(f"  life {lives}, {command}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            lives += 1
    except KeyboardInterrupt:
        pass
    print(f"{'kills':12}" + "".join(f"{how:>10}" for how in SIGNALS))
    for command in COMMANDS:
        print(f"{command:12}" + "".join(f"{done[command][how]:>10}" for how in SIGNALS))
    print(f"{sum(c.total() for c in done.values())} kills in {lives} lives, {faults} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
