"""The lab's models side by side with those of `transformers`, and designs with the standard one.

``python benchmarks/lab.py [--families llama gemma] [--width 256] [--rounds 5]``

A contender is a model with its optimizer; every one takes its turn in every round, after a warm-up that compiles it
where ``--compile`` asks for that.  A turn is a few whole training steps (forward, backward, clipping, AdamW) on the
same tokens.  Rates are tokens over the median wall time, "by CPU" over median processor time, which other processes
disturb less.  "memory" is what one step needs on top of what stands before it: bytes kept for the backward pass
(counted by torch's hooks for saved tensors, each storage once), gradients, and the optimizer's state.

The second table compares designs with the standard one; the paper reports 4% more time and 1% more memory for its
unified strategy (arXiv 2605.26895, at 1 B parameters, where the share of vectors in all is smaller than here).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor, nn

from simulations.lm.architecture import FAMILIES
from simulations.lm.run import Run, make_run, set_up
from simulations.lm.twins import twin

DESIGNS = {
    "standard": {},
    "HG": {"design": "HG"},
    "HG+DP": {"design": "HG+DP"},
    "HG+DNP": {"design": "HG+DNP"},
    "HG+DNP+OR": {"design": "HG+DNP+OR"},
    "scalar multipliers": {"multipliers": "scalar"},
    "row and column multipliers": {"multipliers": "row+column"},
}
STEPS = 4

Loss = Callable[[Tensor, Tensor], Tensor]


class Contender:
    """A model under training."""

    def __init__(self, model: nn.Module, loss: Loss, optimizer: torch.optim.Optimizer, compiled: bool) -> None:
        self.model, self.optimizer = model, optimizer
        self.loss = torch.compile(loss) if compiled else loss

    def turn(self, batches: list[tuple[Tensor, Tensor]]) -> None:
        for tokens, targets in batches:
            self.loss(tokens, targets).backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()

    def memory(self, tokens: Tensor, targets: Tensor) -> int:
        """Bytes of one step, after the optimizer's first."""
        kept: dict[int, int] = {}

        def keep(t: Tensor) -> Tensor:
            storage = t.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
            return t

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            loss = self.loss(tokens, targets)
        for p in self.model.parameters():  # weights stand there before the step
            kept.pop(p.untyped_storage().data_ptr(), None)
        loss.backward()
        gradients = sum(p.grad.nbytes for p in self.model.parameters() if p.grad is not None)
        self.optimizer.zero_grad()
        state = sum(t.nbytes for s in self.optimizer.state.values() for t in s.values() if isinstance(t, Tensor))
        return sum(kept.values()) + gradients + state


def ours(run: Run, compiled: bool) -> Contender:
    lab = set_up(run)
    return Contender(lab.model, lambda x, y: lab.model.loss(x, y)[1], lab.optimizers[0], compiled)  # type: ignore[operator]


def theirs(family: str, run: Run, compiled: bool) -> Contender:
    model = twin(family, run.architecture)
    optimizer = torch.optim.AdamW(model.parameters(), lr=run.lr, fused=True)

    def loss(tokens: Tensor, targets: Tensor) -> Tensor:
        logits = model(tokens, use_cache=False).logits
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    return Contender(model, loss, optimizer, compiled)


def race(contenders: dict[str, Contender], run: Run, rounds: int) -> dict[str, tuple[float, float, float, int]]:
    """Median wall and processor seconds of a step, slowest over fastest, and bytes, of every contender."""
    found = set_up(run).source
    batches = [found.batch(0, step, run.batch, run.length) for step in range(STEPS)]
    for contender in contenders.values():
        contender.turn(batches[:2])
    wall: dict[str, list[float]] = {name: [] for name in contenders}
    cpu: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, contender in contenders.items():
            begun, used = time.perf_counter(), time.process_time()
            contender.turn(batches)
            wall[name].append((time.perf_counter() - begun) / STEPS)
            cpu[name].append((time.process_time() - used) / STEPS)
    return {
        name: (median(wall[name]), median(cpu[name]), max(wall[name]) / min(wall[name]), c.memory(*batches[0]))
        for name, c in contenders.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--families", nargs="*", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5, help="turns of every contender that are timed")
    parser.add_argument("--compile", action="store_true", help="compile every contender")
    a = parser.parse_args()
    sizes = {"width": a.width, "layers": a.layers, "heads": 4, "hidden": a.width // 6 * 16, "length": a.length}
    settings = {"batch": a.batch, "length": a.length}
    try:
        for family in a.families:
            make_run(family, sizes, **settings)
    except ValueError as error:
        parser.error(str(error))
    print(f"width {a.width}, {a.layers} layers, {a.batch} x {a.length} tokens, {torch.get_num_threads()} threads")
    print(f"{'family':28}{'tokens/s':>10}{'transformers':>14}{'ratio':>7}{'by CPU':>8}{'range':>7}{'memory':>8}")
    for family in a.families:
        run = make_run(family, sizes, **settings)
        found = race({"ours": ours(run, a.compile), "theirs": theirs(family, run, a.compile)}, run, a.rounds)
        (wall, cpu, spread, memory), (their_wall, their_cpu, _, their_memory) = found["ours"], found["theirs"]
        tokens = a.batch * a.length
        print(
            f"{family:28}{tokens / wall:10,.0f}{tokens / their_wall:14,.0f}{their_wall / wall:7.2f}"
            f"{their_cpu / cpu:8.2f}{spread:7.1f}{their_memory / memory:8.2f}"
        )
    print(f"\n{'llama with':28}{'parameters':>11}{'time':>8}{'by CPU':>8}{'range':>7}{'memory':>8}")
    runs = {name: make_run("llama", sizes, **settings, **changes) for name, changes in DESIGNS.items()}
    contenders = {name: ours(run, a.compile) for name, run in runs.items()}
    found = race(contenders, runs["standard"], a.rounds)
    base = found["standard"]
    for name, (wall, cpu, spread, memory) in found.items():
        parameters = sum(p.numel() for p in contenders[name].model.parameters())
        print(
            f"{name:28}{parameters:11,}{wall / base[0] - 1:+8.1%}{cpu / base[1] - 1:+8.1%}{spread:7.1f}"
            f"{memory / base[3] - 1:+8.1%}"
        )


if __name__ == "__main__":
    main()
