"""Checkpoints: whole or not there, plain files that anybody can load, and everything that a run needs to go on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from scalerl_mini.config_groups import TrainingConfig
from scalerl_mini.policy import Policy
from scalerl_mini.training.checkpoint import read_state, restore_optimizer, save_checkpoint
from scalerl_mini.training.checkpoint_names import checkpoint_name, list_checkpoints, version_of
from scalerl_mini.training.optimizer import Optimizer
from tests.policy.tiny import Tiny, shift_weights, tiny_policy
from tests.runtime.support import Crash, at_line, crash

STATE = {"version": 0, "curriculum": {"epoch": 1}, "outstanding": [[3, 7, 0]]}


@pytest.fixture
def policy() -> Policy:
    return tiny_policy(Tiny("qwen3", layers=1, hidden=16))


@pytest.fixture
def optimizer(policy: Policy) -> Optimizer:
    return Optimizer(policy.named_tensors(), TrainingConfig())


def train(policy: Policy, optimizer: Optimizer) -> None:
    """One update with made-up gradients."""
    generator = torch.Generator().manual_seed(optimizer.updates)
    for parameter in policy.named_tensors().values():
        parameter.grad = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
    optimizer.step()
    policy.version += 1


def test_a_checkpoint_loads_in_plain_transformers(tmp_path: Path, policy: Policy, optimizer: Optimizer) -> None:
    """In a process that has never heard of this package, with the same logits and the same tokenizer."""
    train(policy, optimizer)
    folder = save_checkpoint(tmp_path, policy, optimizer, STATE, keep=2)
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["Qwen3ForCausalLM"]
    assert "scalerl" not in (folder / "config.json").read_text()
    ids = policy.encode("<bos>12+34=")
    policy.model.set_attn_implementation("eager")
    expected = policy.model(input_ids=torch.tensor([ids])).logits
    script = (
        "import sys, json, torch; from transformers import AutoModelForCausalLM, AutoTokenizer\n"
        "model = AutoModelForCausalLM.from_pretrained(sys.argv[1], attn_implementation='eager')\n"
        "ids = AutoTokenizer.from_pretrained(sys.argv[1]).encode('<bos>12+34=', add_special_tokens=False)\n"
        "assert 'scalerl_mini' not in sys.modules\n"
        "print(json.dumps([ids, model(input_ids=torch.tensor([ids])).logits.tolist()]))"
    )
    done = subprocess.run([sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=True)
    loaded_ids, logits = json.loads(done.stdout.splitlines()[-1])
    assert loaded_ids == ids
    torch.testing.assert_close(torch.tensor(logits), expected, rtol=1e-5, atol=1e-6)


def test_a_checkpoint_holds_safetensors_and_text_only(tmp_path: Path, policy: Policy, optimizer: Optimizer) -> None:
    folder = save_checkpoint(tmp_path, policy, optimizer, STATE, keep=2)
    for path in folder.rglob("*"):
        assert path.suffix in {".json", ".safetensors", ".txt", ".jinja"}, path
        first = path.read_bytes()[:2]
        assert first[:1] != b"\x80", f"{path} looks like a pickle"
        assert first != b"PK", f"{path} looks like a zip of pickles"
        if path.suffix == ".json":
            json.loads(path.read_text())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_restored_optimizer_goes_on_bit_for_bit(tmp_path: Path, dtype: str) -> None:
    policy = tiny_policy(Tiny("qwen3", layers=1, hidden=16, dtype=dtype))
    optimizer = Optimizer(policy.named_tensors(), TrainingConfig())
    for _ in range(3):
        train(policy, optimizer)
    folder = save_checkpoint(tmp_path, policy, optimizer, {"updates": optimizer.updates}, keep=1)
    again = Policy.load(folder, dtype)
    restored = Optimizer(again.named_tensors(), TrainingConfig())
    restore_optimizer(folder, restored, read_state(folder)["updates"])
    for _ in range(3):
        train(policy, optimizer)
        train(again, restored)
    for name, tensor in policy.named_tensors().items():
        assert torch.equal(tensor, again.named_tensors()[name]), name


def test_the_newest_are_kept(tmp_path: Path, policy: Policy, optimizer: Optimizer) -> None:
    for version in (9, 10, 99_999, 100_000):
        policy.version = version
        save_checkpoint(tmp_path, policy, optimizer, STATE, keep=2)
    assert [version_of(path) for path in list_checkpoints(tmp_path)] == [100_000, 99_999]
    assert sorted(os.listdir(tmp_path)) == sorted([checkpoint_name(99_999), checkpoint_name(100_000)])


def test_what_a_link_leads_to_is_never_deleted(tmp_path: Path, policy: Policy, optimizer: Optimizer) -> None:
    precious, folder = tmp_path / "precious", tmp_path / "checkpoints"
    for path in (precious, folder):
        path.mkdir()
    (precious / "thesis.tex").touch()
    for name in (checkpoint_name(1), ".step-00002.tmp"):
        (folder / name).symlink_to(precious)
    policy.version = 3
    save_checkpoint(folder, policy, optimizer, STATE, keep=1)
    assert os.listdir(folder) == [checkpoint_name(3)]
    assert os.listdir(precious) == ["thesis.tex"]


def test_what_is_no_checkpoint_is_not_listed(tmp_path: Path) -> None:
    for name in (".step-00005.tmp", "step-x", "step-00007.old", "step-00004"):
        (tmp_path / name).mkdir()
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step-00004"]
    assert list_checkpoints(tmp_path / "absent") == []


def test_a_save_killed_anywhere_leaves_whole_checkpoints(tmp_path: Path, policy: Policy, optimizer: Optimizer) -> None:
    """`crash` at each line of save_checkpoint in turn: every listed checkpoint loads, the newest is the old or the new
    one, and the next save works and clears up."""
    policy.version = 1
    save_checkpoint(tmp_path, policy, optimizer, {"version": 1}, keep=1)
    newest, line, survived = 1, 0, False
    while not survived:
        line, policy.version = line + 1, newest + 1
        shift_weights(policy, seed=line)
        policy.version = newest + 1
        try:
            with at_line(save_checkpoint, line, crash) as seen:
                save_checkpoint(tmp_path, policy, optimizer, {"version": policy.version}, keep=1)
            survived = len(seen) < line
        except Crash:
            pass
        found = list_checkpoints(tmp_path)
        assert version_of(found[0]) in (newest, newest + 1), f"crash at line event {line}"
        assert read_state(found[0])["version"] == version_of(found[0])
        Policy.load(found[0])
        restore_optimizer(found[0], optimizer, 1)
        newest = version_of(found[0])
    assert line > 10
    assert os.listdir(tmp_path) == [checkpoint_name(newest)]
