"""How long the experiments of the training lab take at full effort on this machine, from a few steps of every arm.

    python benchmarks/experiments.py [EXPERIMENT...] [--steps 12] [--jobs 2]

Every arm is trained twice for a few steps, in as many processes as are to share the experiments: the first time it is
compiled, the second time is that of all later seeds.  A run then takes its set-up, its steps and its evaluations with
whatever they measure; compiling counts once for every process.  What torch compiles it keeps on disk: with an empty
``TORCHINDUCTOR_CACHE_DIR`` it is compiled anew.  The machine should be idle: the load average is printed.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from scalevec_theory.flow import nearest_names
from simulations.lm.experiments import EXPERIMENTS
from simulations.parallel import Call, cores, run_parallel


@dataclass(frozen=True)
class Cost:
    """Seconds of an arm: compiling it, and of a run its set-up, a step and an evaluation."""

    compiling: float
    setting_up: float
    step: float
    evaluation: float


def measure(experiment: str, arm: str, steps: int) -> Cost:
    from simulations.lm.training import train  # in the process that trains

    begins, last = [], (0.0, 0.0)
    for seed in (100, 101):  # seeds that no design uses
        run = replace(EXPERIMENTS[experiment].run(arm, seed, "full"), steps=steps, warmup=0, evaluations=1)
        times = [time.perf_counter()]
        train(run, report=lambda *_, at=times: at.append(time.perf_counter()))
        times.append(time.perf_counter())
        laps = [b - a for a, b in pairwise(times)]
        last = median(laps[1:-1]), laps[-1]
        begins.append(laps[0])
    step, evaluation = last
    return Cost(max(begins[0] - begins[1], 0.0), max(begins[1] - step - evaluation, 0.0), step, evaluation)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = [e.id for e in EXPERIMENTS.values() if not e.on_request]
    parser.add_argument("experiments", nargs="*", default=known, help="all that do not ask for a GPU by default")
    parser.add_argument("--steps", type=int, default=12, help="steps that are timed")
    parser.add_argument("--jobs", type=int, default=cores(), help="processes that share the experiments")
    a = parser.parse_args()
    for name in a.experiments:
        if name not in EXPERIMENTS:
            parser.error(f"{name}: no such experiment; {nearest_names(name, list(EXPERIMENTS))}")
    if a.jobs < 1 or a.steps < 3:
        parser.error(f"--jobs {a.jobs} --steps {a.steps}: expected >= 1 and >= 3")
    todo = [(name, arm) for name in a.experiments for arm in EXPERIMENTS[name].arms]
    print(f"{len(todo)} arms, {a.jobs} processes; load average {os.getloadavg()[0]:.2f}", flush=True)
    costs: dict[tuple[str, str], Cost] = {}
    for index, value in run_parallel([Call(measure, (*pair, a.steps), __file__) for pair in todo], a.jobs):
        if isinstance(value, Exception):
            raise value
        costs[todo[index]] = value
    print(f"{'experiment':14}{'runs':>6}{'compiling, s':>14}{'runs, s':>10}")
    total = 0.0
    for name in a.experiments:
        e, training, compiling = EXPERIMENTS[name], 0.0, 0.0
        for arm in e.arms:
            run, cost = e.run(arm, 0, "full"), costs[name, arm]
            one = cost.setting_up + run.steps * cost.step + (run.evaluations + 1) * cost.evaluation
            training += e.seeds[-1] * one
            compiling += cost.compiling
        print(f"{name:14}{len(e.runs('full')):6}{compiling:14,.0f}{training:10,.0f}")
        total += training + compiling * a.jobs
    print(f"in all {total / 3600:.2f} h of a process, {total / a.jobs / 3600:.2f} h in {a.jobs}")


if __name__ == "__main__":
    main()
