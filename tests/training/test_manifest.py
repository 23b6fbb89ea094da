"""A damaged checkpoint is recognised, said, and not used; the newest whole one is."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from scalerl_mini.errors import UserError
from scalerl_mini.training.checkpoint_names import version_of
from scalerl_mini.training.manifest import MANIFEST, OPTIMIZER, STATE, Damaged, verify, write_manifest
from scalerl_mini.training.resuming import newest_checkpoint
from tests.training.checkpoints import WEIGHTS, made_up_checkpoint


def flip_a_bit(path: Path, at: int = 1234) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def link(path: Path) -> None:
    """The same bytes, but from elsewhere."""
    elsewhere = path.parents[2] / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def change_manifest(folder: Path, change: Callable[[dict], None]) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    change(manifest["files"])
    (folder / MANIFEST).write_text(json.dumps(manifest))


def point_outside(folder: Path, name: str) -> None:
    """A manifest that also vouches for a file elsewhere, which exists."""
    (folder.parents[1] / "precious").write_text("{}")
    change_manifest(folder, lambda files: files.update({name: files["config.json"]}))


def other_version(folder: Path) -> None:
    (folder / STATE).write_text('{"version": 3}')
    (folder / MANIFEST).unlink()
    write_manifest(folder)


DAMAGES: list[tuple[str, Callable[[Path], object]]] = [
    ("model.safetensors has 3999 bytes, 4000 were written", lambda f: (f / WEIGHTS).write_bytes(b"\x08" * 3999)),
    ("model.safetensors has 0 bytes", lambda f: (f / WEIGHTS).write_bytes(b"")),
    ("optimizer.safetensors was changed", lambda f: flip_a_bit(f / OPTIMIZER)),
    ("trainer.json has .* bytes", lambda f: (f / STATE).write_text("{")),
    ("model.safetensors is missing", lambda f: (f / WEIGHTS).unlink()),
    ("trainer.json is missing", lambda f: (f / STATE).unlink()),
    ("trainer.json is of version 3", other_version),
    ("manifest.json is missing", lambda f: (f / MANIFEST).unlink()),
    ("manifest.json is missing", empty),
    ("manifest.json is not what was written", lambda f: (f / MANIFEST).write_text('{"files": {')),
    ("manifest.json is not what was written", lambda f: (f / MANIFEST).write_text('["files"]')),
    ("config.json is missing", lambda f: ((f / MANIFEST).write_text('{"files": {}}'), (f / "config.json").unlink())),
    ("names '../../precious'", lambda f: point_outside(f, "../../precious")),
    ("names '/etc/passwd'", lambda f: point_outside(f, "/etc/passwd")),
    ("names '..'", lambda f: point_outside(f, "..")),
    ("model.safetensors is a link or a folder", lambda f: link(f / WEIGHTS)),
    ("adapter_config.json is not in manifest.json", lambda f: (f / "adapter_config.json").write_text("{}")),
    ("modeling.py is not in manifest.json", lambda f: (f / "modeling.py").write_text("raise SystemExit")),
]  # fmt: skip


def test_a_checkpoint_as_it_was_written_is_whole(tmp_path: Path) -> None:
    verify(made_up_checkpoint(tmp_path, 8))
    moved = shutil.copytree(tmp_path / "checkpoints" / "step-00008", tmp_path / "copy" / "step-00008")
    (moved / ".hidden").touch()  # what file managers leave
    verify(moved)


@pytest.mark.parametrize(("reason", "damage"), DAMAGES)
def test_any_damage_is_found_and_the_checkpoint_before_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, reason: str, damage: Callable[[Path], object]
) -> None:
    for version in (4, 8):
        made_up_checkpoint(tmp_path, version)
    newest = tmp_path / "checkpoints" / "step-00008"
    damage(newest)
    with pytest.raises(Damaged, match=reason):
        verify(newest)
    with caplog.at_level(logging.WARNING):
        assert version_of(newest_checkpoint(tmp_path)) == 4
    (line,) = caplog.messages
    assert "step-00008" in line
    assert line.endswith(f"going on from {tmp_path / 'checkpoints' / 'step-00004'}")


def test_every_single_bit_counts(tmp_path: Path) -> None:
    folder = made_up_checkpoint(tmp_path, 1)
    for name in (WEIGHTS, OPTIMIZER, "config.json", STATE):
        for at in (0, (folder / name).stat().st_size - 1):
            flip_a_bit(folder / name, at)
            with pytest.raises(Damaged, match=f"{name} was changed"):
                verify(folder)
            flip_a_bit(folder / name, at)
    verify(folder)


def test_when_none_is_whole_each_is_named(tmp_path: Path) -> None:
    for version in (4, 8):
        made_up_checkpoint(tmp_path, version)
    flip_a_bit(tmp_path / "checkpoints" / "step-00004" / WEIGHTS)
    (tmp_path / "checkpoints" / "step-00008" / STATE).unlink()
    with pytest.raises(UserError) as refused:
        newest_checkpoint(tmp_path)
    text = str(refused.value)
    assert "step-00008: trainer.json is missing; step-00004: model.safetensors was changed" in text
    assert "\n" not in text
