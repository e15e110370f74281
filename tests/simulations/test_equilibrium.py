"""``scalevec equilibrium``: what it prints and writes, and bad input in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from scalevec_theory.equilibrium import predict
from scalevec_theory.optimizers import OPTIMIZERS, AdamW
from scalevec_theory.schedules import SCHEDULES, wsd
from simulations import cli
from simulations import equilibrium as command

ADAMW = "--optimizer adamw --lr 3e-3 --weight-decay 0.1 --betas 0.9,0.95 --steps 2000 --schedule wsd --warmup 100"


def scalevec(options: str) -> Result:
    return CliRunner().invoke(cli.main, ["equilibrium", *options.split()], catch_exceptions=False)


def test_names_are_those_of_the_library() -> None:
    assert sorted(OPTIMIZERS) == list(command.OPTIMIZERS)
    assert sorted(SCHEDULES) == list(command.SCHEDULES)


def test_prints_the_prediction_and_writes_every_step(tmp_path: Path) -> None:
    file, picture = tmp_path / "run.json", tmp_path / "run.svg"
    result = scalevec(f"{ADAMW} --shape 64x128 --init 0.02 --json {file} --figure {picture}")
    assert result.exit_code == 0, result.output
    expected = predict(
        AdamW(3e-3, 0.1, betas=(0.9, 0.95)), 2000, init=0.02, shape=(64, 128), lr_schedule=wsd(2000, 100)
    )
    written = json.loads(file.read_text())
    assert written["rms"] == expected.rms.tolist()
    assert written["outside"] == []
    assert written["settings"] == {"lr": 3e-3, "weight_decay": 0.1, "betas": [0.9, 0.95], "eps": 1e-8}
    assert f"{expected.rms[-1]:.5g}" in result.stdout and f"{expected.norm(64 * 128)[0][1000]:.5g}" in result.stdout
    assert "at rest at this learning rate: rms 0.12114" in result.stdout
    assert picture.exists() and picture.with_suffix(".png").exists()


@pytest.mark.parametrize("name", command.OPTIMIZERS)
def test_every_optimizer_runs(name: str) -> None:
    result = scalevec(f"--optimizer {name} --lr 0.01 --weight-decay 0.1 --steps 20 --shape 8x16")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--optimizer adamw --betas 0.9,0.9", ["warning: beta2=0.9 is below 0.95"]),
        ("--optimizer rmsprop --alpha 0.9 --warmup 5", ["warning: alpha=0.9 is below 0.95"]),
        ("--optimizer rmsprop", ["warning: no warm-up of 5 steps"]),
        ("--optimizer adam --lr 0.2", ["warning: lr * weight_decay / (noise + eps) = 0.02 is above 0.01"]),
        ("--optimizer adam --init 10", ["warning: weight_decay * rms / (noise + eps) reaches 1, above 0.15"]),
        ("--optimizer adamw --betas 0.9,0.9 --lr 0.2", ["warning: beta2=0.9", "warning: lr * weight_decay = 0.02"]),
        ("--optimizer adamw --betas 0.9,0.95 --lr 0.1", []),
        ("--optimizer sgd --lr 0.2", []),
        ("--optimizer lion --lr 0.2", []),
    ],
)
def test_settings_outside_of_the_tested_limits_are_told(options: str, told: list[str]) -> None:
    result = scalevec(f"{options} --weight-decay 0.1 --steps 5" + (" --lr 0.01" if "--lr" not in options else ""))
    assert result.exit_code == 0
    assert ("the first 20 steps can be off" in result.stdout) == ("sgd" not in options and "lion" not in options)
    assert result.stdout.count("warning:") == len(told) and all(text in result.stdout for text in told)


def test_the_deviation_of_muons_scale_invariant_norm_is_said_to_be_too_small() -> None:
    def told(options: str) -> bool:
        found = scalevec(f"--lr 0.1 --weight-decay 0.05 --steps 600 --shape 16x16 --init 1 {options}")
        return "± of the norm is too small by a factor of about 1.3" in found.stdout  # at rest 1.29 was measured

    assert told("--optimizer muon --scale-invariant")
    assert not told("--optimizer lion --scale-invariant") and not told("--optimizer muon")


def test_without_decay_it_says_so() -> None:
    result = scalevec("--optimizer lion --lr 0.01 --weight-decay 0 --steps 20")
    assert result.exit_code == 0
    assert "no weight decay: w grows without bound" in result.stdout


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("--betas 0.9,1.0", "betas=(0.9, 1.0): expected two numbers in [0, 1)"),
        ("--betas a", "betas='a': expected floats joined by ','"),
        ("--weight-decay -1", "weight_decay=-1.0: expected a finite number >= 0"),
        ("--lr 0", "lr=0.0: expected a finite number > 0"),
        ("--lr 20", "lr * weight_decay = 2: unstable"),
        ("--momentum 0.9", "momentum=0.9: adamw has lr, weight_decay, betas, eps"),
        ("--steps 0", "steps=0"),
        ("--warmup 2001", "warmup=2001"),
        ("--scale-invariant", "shape is not given: Muon and scale-invariant weights need it; expected --shape"),
        ("--shape 8y8", "shape='8y8': expected ints joined by 'x'"),
        ("--noise 0", "noise=0.0"),
        ("--json /nowhere/x.json", "/nowhere/x.json"),
    ],
)
def test_bad_input_is_one_line_and_status_2(change: str, told: str) -> None:
    result = scalevec(f"{ADAMW} {change}")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("scalevec: error: ") and result.stderr.count("\n") == 1
    assert told in result.stderr
