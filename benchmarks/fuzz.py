"""Damaged files and senseless input, many of them: ``python benchmarks/fuzz.py [--inputs 100000] [--seed 0]``.

Every input is a mutation of a valid one, or made by a small grammar, and is given to the function that reads it in the
product.  What counts as a fault: an exception other than the one-line errors that the command line tells (ValueError,
OSError, click's), a call of more than 20 seconds, a damaged data file that is read as data, a setting out of range
that is accepted, and code in a data file that runs.  Exit status 1 if there is a fault.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import pickle
import random
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from math import isfinite
from pathlib import Path

import click

SLOW = 20.0
SHARES = {
    "datasets": 40,
    "settings": 30,
    "checkpoints": 6,
    "outcomes": 12,
    "commands": 6,
    "claim files": 5,
    "configs": 1,
}
"""How inputs are shared out, in percent."""

Trial = Callable[[random.Random], str | None]
"""One input: None if all is well, or what is wrong."""


def mutated(content: bytes, rng: random.Random) -> bytes:
    """Bits flipped, bytes cut off, left out, doubled, zeroed or put in."""
    found = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        kind, at = rng.randrange(6), rng.randrange(max(1, len(found)))
        size = rng.choice((1, 2, 8, 64, len(found) // 3 + 1))
        if kind == 0 and found:
            found[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del found[at:]
        elif kind == 2:
            del found[at : at + size]
        elif kind == 3:
            found[at:at] = found[at : at + size]
        elif kind == 4:
            found[at : at + size] = bytes(len(found[at : at + size]))
        else:
            found[at:at] = rng.randbytes(min(size, 64))
    return bytes(found)


class Payload:
    """Unpickled, it would write a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self.path), "w")


def datasets(folder: Path) -> Trial:
    from simulations.lm.run import make_run
    from simulations.lm.training import train
    from simulations.runs import RunStore

    sizes = {"width": 8, "layers": 1, "heads": 1, "hidden": 8}
    run = make_run("llama", sizes, data="markov:4", steps=4, batch=2, length=4, evaluations=2, held_out=1)
    train(run, folder)
    store = RunStore(folder)
    content = store.path(run.key).read_bytes()
    marker = folder / "ran"

    def trial(rng: random.Random) -> str | None:
        bad = pickle.dumps(Payload(marker)) if rng.random() < 0.02 else mutated(content, rng)
        store.path(run.key).write_bytes(bad)
        found = store.get(run.key)
        for left in folder.iterdir():
            if left.name != "ran":
                left.unlink()
        if marker.exists():
            return "code in a data file ran"
        return "a damaged run was read" if found is not None and bad != content else None

    return trial


def checkpoints(folder: Path) -> Trial:
    import torch

    from simulations.lm.run import make_run, set_up
    from simulations.lm.training import _Course, train

    sizes = {"width": 8, "layers": 1, "heads": 1, "hidden": 8}
    run = make_run("llama", sizes, data="markov:4", steps=4, batch=2, length=4, evaluations=2, held_out=1)
    train(run, folder, stop_after=2)
    path = folder / f"{run.key}.checkpoint"
    content, marker = path.read_bytes(), folder / "ran"
    lab = set_up(run)
    evil = io.BytesIO()
    torch.save({"model": Payload(marker)}, evil)

    def trial(rng: random.Random) -> str | None:
        bad = rng.choice((evil.getvalue(), pickle.dumps(Payload(marker)))) if rng.random() < 0.05 else None
        bad = mutated(content, rng) if bad is None else bad
        path.write_bytes(bad)
        course = _Course(lab, folder)
        went_on = course.resume(folder)
        for left in folder.iterdir():
            if left.name != "ran":
                left.unlink()
        if marker.exists():
            return "code in a checkpoint ran"
        return "a damaged checkpoint was taken" if went_on and bad != content else None

    return trial


def settings(folder: Path) -> Trial:
    from simulations.lm.architecture import FAMILIES, Architecture
    from simulations.lm.commands import split_settings
    from simulations.lm.run import Run, make_run
    from simulations.settings import parse_settings

    names = [f.name for f in fields(Run)] + [f.name for f in fields(Architecture)] + ["stpes", ""]
    values = (
        *("0", "1", "2", "3", "7", "-1", "0.5", "1e-3", "1e400", "NaN", "Infinity", "-Infinity", "true", "null", "[]"),
        *("[0.9, 0.95]", '["a"]', "{}", '""', "adamw", "muon", "HG+OR", "scalar", "cosine", "markov:4", "iwd", "none"),
        *("99999999999999999999", "é", "\x00", "a=b", "[1, 2, 3]", "row+column", "float32"),
    )

    def trial(rng: random.Random) -> str | None:
        texts = [f"{rng.choice(names)}={rng.choice(values)}" for _ in range(rng.choice((1, 1, 2, 3)))]
        if rng.random() < 0.1:
            texts[0] = mutated(texts[0].encode(), rng).decode("utf-8", "replace")
        sizes, others = split_settings(parse_settings(texts))
        run = make_run(rng.choice(list(FAMILIES)), sizes, **{"data": "markov:4", **others})
        positive = (run.lr, run.steps, run.batch, run.length, run.evaluations, run.held_out, run.accumulate)
        positive += tuple(getattr(run.architecture, n) for n in ("width", "layers", "heads", "hidden"))
        small = (run.weight_decay, run.multiplier_decay, run.clip, run.seed, run.warmup)
        for x in (*positive, *small):
            if isinstance(x, bool) or not isinstance(x, int | float) or not isfinite(x) or x < 0:
                return f"accepted {texts}"
        return None if all(x > 0 for x in positive) else f"accepted {texts}"

    return trial


def outcomes(folder: Path) -> Trial:
    from simulations.lm.experiment import OUTCOMES, stored

    contents = [p.read_bytes() for p in sorted(OUTCOMES.glob("*.json"))]
    path = folder / "outcome.json"

    def trial(rng: random.Random) -> str | None:
        path.write_bytes(mutated(rng.choice(contents), rng))
        stored(path)
        return None

    return trial


def commands(folder: Path) -> Trial:
    from simulations.cli import main

    words = (
        *("check", "claims", "falsify", "figures", "discover", "new-claim", "equilibrium", "audit", "train", "runs"),
        *("experiment", "sweep", "report", "list", "show", "export", "--effort", "--seed", "--jobs", "--json", "--set"),
        *("--out", "--budget", "--scope", "--grid", "--dims", "--lr", "-1", "x", "é", "", "--", "no-such", "no.py"),
        *("no.py:f", "/dev/null/x", "1e9999", "a=b", "a=", "=", "c=0", "\x7f", "Nothing", "--help", "--version"),
    )

    def trial(rng: random.Random) -> str | None:
        arguments = [rng.choice(words) for _ in range(rng.randrange(1, 6))]
        arguments += ["no-such"]  # nothing that could run for long
        try:
            main(arguments)
        except SystemExit as stop:
            return None if stop.code in (0, 1, 2, None) else f"status {stop.code} of {arguments}"
        return None

    return trial


def claim_files(folder: Path) -> Trial:
    from scalevec_theory.registry import claims_in_file
    from simulations.new_claim import write_claim

    text = write_claim("my-idea", folder)[0].read_text()

    def trial(rng: random.Random) -> str | None:
        lines = text.splitlines(keepends=True)
        for _ in range(rng.randrange(1, 4)):
            kind, at = rng.randrange(4), rng.randrange(len(lines))
            if kind == 0:
                del lines[at]
            elif kind == 1:
                lines.insert(at, lines[rng.randrange(len(lines))])
            elif kind == 2:
                words = lines[at].split(" ")
                lines[at] = " ".join(words[:-1])
            else:
                lines[at] = mutated(lines[at].encode(), rng).decode("utf-8", "replace")
        path = folder / "fuzzed.py"
        path.write_text("".join(lines))
        claims_in_file(path)
        return None

    return trial


def configs(folder: Path) -> Trial:
    from simulations.models import outline
    from simulations.models.targets import find_subject

    outline.MODULES = 1000  # counting to the real limit takes a minute
    valid = {
        "model_type": "llama",
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "vocab_size": 16,
    }
    values = (0, -1, 1.5, None, "x", [], {}, True, 64, 3, 10**9, 10**30)
    path = folder / "config.json"

    def trial(rng: random.Random) -> str | None:
        config = dict(valid)
        for _ in range(rng.randrange(1, 3)):
            config[rng.choice(list(valid))] = rng.choice(values)
        text = json.dumps(config)
        path.write_bytes(mutated(text.encode(), rng) if rng.random() < 0.3 else text.encode())
        find_subject(str(path), sizes="given")
        return None

    return trial


KINDS = {
    "datasets": datasets,
    "settings": settings,
    "checkpoints": checkpoints,
    "outcomes": outcomes,
    "commands": commands,
    "claim files": claim_files,
    "configs": configs,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    a = parser.parse_args()
    logging.getLogger("scalevec").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore")
    faults: Counter[str] = Counter()
    print(f"{'kind':14}{'inputs':>9}{'refused':>9}{'faults':>8}{'seconds':>9}", flush=True)
    for kind in a.kinds:
        count, refused, begun = a.inputs * SHARES[kind] // 100, 0, time.perf_counter()
        with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
            folder = Path(name) / "files"
            folder.mkdir()
            trial = KINDS[kind](folder)
            for i in range(count):
                rng, started, wrong = random.Random(f"{a.seed} {kind} {i}"), time.perf_counter(), None
                try:
                    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                        wrong = trial(rng)
                except (ValueError, OSError, click.ClickException):
                    refused += 1
                except BaseException as error:
                    if isinstance(error, KeyboardInterrupt):
                        raise
                    line = traceback.extract_tb(error.__traceback__)[-1]
                    wrong = f"{type(error).__name__}: {error} ({Path(line.filename).name}:{line.lineno})"
                if time.perf_counter() - started > SLOW:
                    wrong = "hangs"
                if wrong is not None:
                    faults[kind] += 1
                    if faults[kind] <= 8:
                        print(f"  {kind} {i}: {' '.join(wrong.split())[:200]}", file=sys.stderr, flush=True)
        print(f"{kind:14}{count:9,}{refused:9,}{faults[kind]:8,}{time.perf_counter() - begun:9.0f}", flush=True)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
