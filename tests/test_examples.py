"""Every configuration among the examples passes all checks that come before a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scalerl_mini.config import load_config
from scalerl_mini.gpu import Gpu
from scalerl_mini.training import preflight as preflight_module
from scalerl_mini.training.preflight import preflight
from tests.training.test_chat_template import with_template

FOLDER = Path(__file__).parents[1] / "examples"
EXAMPLES = sorted(FOLDER.glob("*.toml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_could_be_run(path: Path) -> None:
    preflight(load_config(path))


def test_two_gpus_and_gsm8k_could_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On two made-up GPUs, with a vLLM that is said to be installed, a tiny model with a chat template and a long context,
    and files of the data set's form."""
    pytest.importorskip("math_verify")
    path = FOLDER / "two_gpu_gsm8k" / "train.toml"
    config = load_config(path)
    assert config.model.name.startswith("Qwen/Qwen2.5-0.5B")
    model = with_template(tmp_path / "model")
    settings = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(settings | {"max_position_embeddings": 32_768}))
    for name, first in (("train", 0), ("test", 10_000)):
        rows = [{"question": f"{n}+1=", "answer": f"{n}+1=2\n#### {n + 1:,}"} for n in range(first, first + 1200)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked: list[int] = []

    def two_gpus() -> list[Gpu]:
        asked.append(2)
        return [Gpu("made up", 80 * 2**30, 80 * 2**30)] * 2

    monkeypatch.setattr(preflight_module, "check_vllm", lambda device: None)
    monkeypatch.setattr(preflight_module, "ask_gpus", two_gpus)
    files = f"path='{tmp_path}/train.jsonl', held_out_path='{tmp_path}/test.jsonl'"
    preflight(load_config(path, (f"model.name={model}", f"task.options={{{files}, dataset='', held_out_split=''}}")))
    assert asked
