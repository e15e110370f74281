"""The lab's data: what is held out, what a batch depends on, and the entropy rate of the Markov source."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from simulations.lm.data import Corpus, Markov, find_source


def test_the_standard_library_is_split_by_file():
    source = find_source("stdlib")
    assert source.vocabulary == 256 and source.entropy is None
    train, held_out = bytes(source.train), bytes(source.held_out)
    assert len(train) > 5_000_000 and len(train) / 40 < len(held_out) < len(train) / 8
    files = [f for f in held_out.split(b"\0") if len(f) > 1000]
    assert files and not any(f in train for f in files[:20])


def test_a_batch_depends_on_seed_and_step_only():
    source = find_source("stdlib")
    inputs, targets = source.batch(3, 7, 4, 16)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert torch.equal(source.batch(3, 7, 4, 16)[0], inputs)
    for other in ((4, 7), (3, 8)):
        assert not torch.equal(source.batch(*other, 4, 16)[0], inputs)
    assert not torch.equal(source.batch(3, 7, 4, 16, held_out=True)[0], inputs)


def test_the_markov_source_has_its_transitions_and_entropy():
    source = Markov(4, concentration=0.5)
    tokens = source.sequences(np.random.default_rng(0), 4000, 100, False)
    counts = np.zeros((4, 4, 4))
    np.add.at(counts, (tokens[:, :-2].ravel(), tokens[:, 1:-1].ravel(), tokens[:, 2:].ravel()), 1)
    pairs = counts.sum(-1)
    assert np.abs(pairs / pairs.sum() - source.stationary).max() < 3e-3
    assert np.abs(counts / pairs[..., None] - source.law)[pairs > 5000].max() < 0.03
    log = np.log(source.law[tokens[:, :-2], tokens[:, 1:-1], tokens[:, 2:]])
    mean = -log.mean(1)
    assert abs(mean.mean() - source.entropy) < 4 * mean.std() / len(mean) ** 0.5


def test_the_least_loss_is_that_of_the_source_s_own_probabilities():
    source = Markov(4, concentration=0.5)
    inputs, targets = source.batch(0, 0, 20_000, 3)
    tokens = torch.cat([inputs, targets[:, -1:]], 1).numpy()
    after_one = source.stationary / source.stationary.sum(1, keepdims=True)
    first = np.log(after_one[tokens[:, 0], tokens[:, 1]])
    later = np.log(source.law[tokens[:, :-2], tokens[:, 1:-1], tokens[:, 2:]])
    loss = -(first + later.sum(1)) / 3
    assert abs(loss.mean() - source.least_loss(3)) < 4 * loss.std() / len(loss) ** 0.5
    assert source.least_loss(3) > source.entropy + 0.01


def test_text_files_folders_and_token_files_are_read(tmp_path):
    (tmp_path / "text.txt").write_bytes(bytes(range(200)))
    one = find_source(str(tmp_path / "text.txt"))
    assert (len(one.train), len(one.held_out), one.vocabulary) == (190, 10, 256)
    (tmp_path / "more.md").write_bytes(b"held out")
    folder = find_source(str(tmp_path))
    assert bytes(folder.held_out) == bytes(range(200)) + b"\0" and bytes(folder.train) == b"held out\0"
    np.arange(300, dtype=np.uint16).tofile(tmp_path / "train.bin")
    np.arange(20, dtype=np.uint16).tofile(tmp_path / "val.bin")
    find_source.cache_clear()
    binary = find_source(str(tmp_path))
    assert binary.vocabulary == 300 and binary.fingerprint != folder.fingerprint


@pytest.mark.parametrize("name", ["nowhere", "markov:1", "markov:x", ""])
def test_other_names_are_refused(name):
    with pytest.raises(ValueError, match=f"data='{name}': expected"):
        find_source(name)


def test_too_little_text_is_named():
    source = Corpus("tiny", 256, np.zeros(5, np.uint8), np.zeros(5, np.uint8))
    for held_out, part in ((False, "to train on"), (True, "held out")):
        with pytest.raises(ValueError, match=f"length=5: expected fewer than the 5 tokens {part} of tiny"):
            source.batch(0, 0, 1, 5, held_out)


def test_token_files_that_are_empty_or_named_one_by_one_are_refused(tmp_path):
    np.arange(300, dtype=np.uint16).tofile(tmp_path / "train.bin")
    with pytest.raises(ValueError, match=r"train.bin': expected the folder, with train.bin and val.bin in it"):
        find_source(str(tmp_path / "train.bin"))
    (tmp_path / "val.bin").write_bytes(b"")
    with pytest.raises(ValueError, match=r"data=.*: val.bin has no tokens; expected 16-bit numbers"):
        find_source(str(tmp_path))
