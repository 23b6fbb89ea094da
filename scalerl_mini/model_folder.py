"""What a model folder may hold: safetensors and JSON. Whatever could run code or lead elsewhere is refused, with the reason.

    pickled weights       refused where there is nothing else, and never opened where safetensors lie beside them
    auto_map              Python code of the folder that transformers would import with trust_remote_code
    adapter_config.json   transformers would load the base model that it names in the place of this one
    index of the shards   its names must be safetensors files of the same folder

Checked at the start of a run and again by whoever loads the folder. No torch here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scalerl_mini.errors import UserError

PICKLED = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")
INDEX = "model.safetensors.index.json"


def check_model_folder(folder: Path) -> None:
    """Raise UserError unless `folder` holds a model that can be loaded without running any code of its own."""
    if not (folder / "config.json").is_file():
        raise UserError(f"model folder {folder} has no config.json; it must be a Hugging Face model folder")
    _check_weights(folder)
    if (folder / "adapter_config.json").exists():
        raise UserError(f"model folder {folder} has an adapter_config.json; merge the adapter into its base model")
    for path in sorted(folder.glob("*.json")):
        if path.name.endswith("config.json") and "auto_map" in read_json(path):
            raise UserError(
                f"{path} has an auto_map, which runs Python code of the folder (trust_remote_code); this is never done: "
                "remove it if transformers knows the model type, or choose another model"
            )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of a model folder. Raises UserError when it is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is not valid JSON ({error}); copy or download the model again") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} is not a JSON object; copy or download the model again")
    return content


def _check_weights(folder: Path) -> None:
    if not any(folder.glob("*.safetensors")):
        pickled = sorted(path.name for pattern in PICKLED for path in folder.glob(pattern))
        what = f", only {pickled[0]}: pickle can run code and is never loaded" if pickled else ""
        raise UserError(f"model folder {folder} has no *.safetensors weights{what}; convert them to safetensors")
    if not (folder / INDEX).exists():
        return
    shards = read_json(folder / INDEX).get("weight_map")
    if not isinstance(shards, dict):
        raise UserError(f"{folder / INDEX} has no weight_map; copy or download the model again")
    for name in sorted({str(shard) for shard in shards.values()}):
        if name != Path(name).name or not name.endswith(".safetensors"):
            raise UserError(f"{folder / INDEX} names {name!r}, which is not a safetensors file of the folder; refused")
