"""A malicious model folder does nothing: it is refused with the reason, and nothing in it is run or followed."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scalerl_mini.errors import UserError
from scalerl_mini.model_folder import INDEX, check_model_folder
from scalerl_mini.policy import Policy
from scalerl_mini.training.preflight import MODELS


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A good model folder to spoil. Whatever is set off makes `tmp_path/fired`."""
    return Path(shutil.copytree(MODELS / "tiny-adder", tmp_path / "model"))


def arm(path: Path) -> None:
    path.write_bytes(pickle.dumps(Bomb(path.parents[1] / "fired")))


def only_pickle(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    arm(folder / "pytorch_model.bin")


def auto_map(folder: Path, name: str) -> None:
    """Code of the folder for a model type that transformers does not know."""
    (folder / "code.py").write_text(f"open({str(folder.parent / 'fired')!r}, 'w')\nclass Model: pass\n")
    path = folder / name
    content = json.loads(path.read_text()) | {"auto_map": {"AutoConfig": "code.Model"}, "model_type": "mine"}
    path.write_text(json.dumps(content))


def shards(folder: Path, name: str) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": {"lm_head.weight": name}}))


MALICE: list[tuple[str, Callable[[Path], object]]] = [
    ("only pytorch_model.bin: pickle can run code", only_pickle),
    ("config.json has an auto_map, which runs Python code", lambda f: auto_map(f, "config.json")),
    ("tokenizer_config.json has an auto_map, which runs Python code", lambda f: auto_map(f, "tokenizer_config.json")),
    ("merge the adapter", lambda f: (f / "adapter_config.json").write_text('{"base_model_name_or_path": "a/b"}')),
    ("names '../model/model.safetensors'", lambda f: shards(f, "../model/model.safetensors")),
    ("names '/etc/passwd'", lambda f: shards(f, "/etc/passwd")),
    ("names 'pytorch_model.bin'", lambda f: (arm(f / "pytorch_model.bin"), shards(f, "pytorch_model.bin"))),
    ("has no weight_map", lambda f: (f / INDEX).write_text('{"weight_map": []}')),
    ("is not a JSON object", lambda f: (f / "generation_config.json").write_text("[]")),
]  # fmt: skip


def test_a_model_folder_as_it_is_shipped_is_fine(folder: Path) -> None:
    check_model_folder(folder)


@pytest.mark.parametrize(("reason", "spoil"), MALICE)
def test_a_malicious_model_folder_is_refused(folder: Path, reason: str, spoil: Callable[[Path], object]) -> None:
    spoil(folder)
    for refuse in (check_model_folder, Policy.load):
        with pytest.raises(UserError, match=reason) as refused:
            refuse(folder)
        assert "\n" not in str(refused.value)
    assert not (folder.parent / "fired").exists()


def test_a_pickle_beside_safetensors_is_never_opened(folder: Path) -> None:
    for name in ("pytorch_model.bin", "training_args.bin", "tokenizer.pkl", "model.pt"):
        arm(folder / name)
    check_model_folder(folder)
    Policy.load(folder)
    assert not (folder.parent / "fired").exists()


def test_the_bombs_of_this_file_work(folder: Path) -> None:
    arm(folder / "x.pkl")
    pickle.loads((folder / "x.pkl").read_bytes())
    assert (folder.parent / "fired").exists()
