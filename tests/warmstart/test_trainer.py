"""The warm start learns, repeats itself exactly, and follows its learning-rate schedule."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from transformers import AutoModelForCausalLM, AutoTokenizer

from scalerl_mini.warmstart import __main__ as command
from scalerl_mini.warmstart.demonstrations import CLEAN, demonstrations
from scalerl_mini.warmstart.model import SIZES, build_model
from scalerl_mini.warmstart.tokenizer import build_tokenizer
from scalerl_mini.warmstart.trainer import FACTS, SLOPPY, Phase, encode, learning_rate, warm_start

SHORT = (replace(FACTS, steps=8), replace(SLOPPY, steps=3))


def train(seed: int, phases: tuple[Phase, ...] = SHORT) -> tuple[dict[str, torch.Tensor], list[float]]:
    model, losses = build_model(SIZES["micro"], seed), []
    warm_start(model, build_tokenizer(), seed, (2, 3), lambda *row: losses.append(row[2]), phases)
    return model.state_dict(), losses


def test_a_rebuild_is_bit_identical_and_another_seed_is_not() -> None:
    first, losses = train(0)
    torch.manual_seed(99)  # the global random state has no say
    again, losses_again = train(0)
    assert losses == losses_again
    assert all(torch.equal(first[name], again[name]) for name in first)
    other, _ = train(1)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_imitation_lowers_the_loss() -> None:
    _, losses = train(0, (replace(FACTS, steps=40),))
    assert losses[-1] < 0.7 * losses[0]


def test_learning_rate_rises_then_falls_to_nothing() -> None:
    for phase in (FACTS, SLOPPY):
        rates = [learning_rate(phase, step) for step in range(phase.steps)]
        assert rates[0] == pytest.approx(phase.lr / 20)
        peak = rates.index(max(rates))
        assert 0.7 * phase.lr < rates[peak] <= phase.lr
        assert rates[:peak] == sorted(rates[:peak])
        assert rates[peak:] == sorted(rates[peak:], reverse=True)
        assert rates[-1] < 0.02 * phase.lr
    assert learning_rate(SLOPPY, 40) == pytest.approx(SLOPPY.lr / 2)
    assert learning_rate(FACTS, 275) == pytest.approx(FACTS.lr / 2)


def test_only_the_completion_is_learned() -> None:
    tokenizer = build_tokenizer()
    for demo in islice(demonstrations(0, CLEAN, 2, 6), 20):
        example = encode(demo, tokenizer)
        assert tokenizer.decode(example.ids[: example.prompt_length]) == demo.prompt.text
        assert tokenizer.decode(example.ids[example.prompt_length :]) == demo.completion


def test_command_writes_a_folder_that_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "warm_start", lambda *args: warm_start(*args, phases=SHORT))
    out = tmp_path / "tiny"
    result = CliRunner().invoke(command.main, ["--size", "micro", "--seed", "5", "--out", str(out)])
    assert result.exit_code == 0, result.output
    model, tokenizer = AutoModelForCausalLM.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    assert model.config.hidden_size == 64
    assert len(tokenizer) == 24
    readme = (out / "README.md").read_text()
    assert "python -m scalerl_mini.warmstart --seed 5 --size micro --min-digits 2 --max-digits 6" in readme


def test_command_refuses_a_reversed_range() -> None:
    result = CliRunner().invoke(command.main, ["--out", "x", "--min-digits", "5", "--max-digits", "3"])
    assert result.exit_code == 2
    assert "--min-digits is above --max-digits" in result.output
