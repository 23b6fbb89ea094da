"""What a resumed run may change, keeps in its record, and refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scalerl_mini.config import dump_toml, load_config
from scalerl_mini.errors import UserError
from scalerl_mini.training.checkpoint_names import list_checkpoints, version_of
from scalerl_mini.training.resuming import MAY_CHANGE, go_on, newest_checkpoint, resumed_config
from scalerl_mini.training.run_folder import RunFolder
from tests.training.checkpoints import made_up_checkpoint
from tests.training.test_resume import MakeLoop, stop_after


def flat_keys(tree: dict[str, Any], path: str = "") -> Iterator[str]:
    """`group.key` of every value."""
    for key, value in tree.items():
        yield from flat_keys(value, f"{path}{key}.") if isinstance(value, dict) else [path + key]


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A run folder as far as `resumed_config` looks at it."""
    (tmp_path / "config.toml").write_text(dump_toml(load_config(None, ("training.lr=0.5",))))
    (tmp_path / "run.json").write_text("{}")
    return tmp_path


def test_a_resumed_run_has_its_own_configuration(stopped: Path) -> None:
    config = resumed_config(stopped, ("training.steps=400", "runtime.threads=2"))
    assert (config.training.lr, config.training.steps, config.runtime.threads) == (0.5, 400, 2)


def test_what_changes_at_a_resume_is_kept_in_the_record(stopped: Path) -> None:
    folder = RunFolder(stopped)
    for version, settings in ((4, ("training.steps=400",)), (8, ()), (8, ("runtime.threads=2", "training.steps=400"))):
        if version not in map(version_of, list_checkpoints(folder.checkpoints)):
            made_up_checkpoint(stopped, version)
        assert version_of(go_on(folder, resumed_config(stopped, settings))) == version
    history = folder.read_record()["history"]
    assert [(entry["from_version"], entry["changed"]) for entry in history] == [
        (4, {"training.steps": [300, 400]}), (8, {}), (8, {"runtime.threads": [1, 2]}),
    ]  # fmt: skip
    assert load_config(folder.config) == resumed_config(stopped, ())


def test_rows_that_a_checkpoint_counts_on_and_that_are_gone_are_said(
    make_loop: MakeLoop, caplog: pytest.LogCaptureFixture
) -> None:
    first = make_loop()
    stop_after(first, 4)
    first.run()
    first.folder.steps.write_bytes(b"".join(first.folder.steps.read_bytes().splitlines(keepends=True)[1:]))
    go_on(first.folder, first.config)
    (line,) = caplog.messages
    assert line.endswith(
        "steps.jsonl has 3 of the 4 rows that were written up to step 4; the run goes on without the others"
    )
    assert make_loop(resume=True).run() is None


def test_other_prompts_under_the_same_name_are_refused(make_loop: MakeLoop) -> None:
    first = make_loop("task.options.prompts=12")
    stop_after(first, 2)
    first.run()
    with pytest.raises(UserError, match=r"prompts of task .* are not those that the run began with"):
        make_loop("task.options.prompts=13", resume=True)


def test_what_may_change_exists_and_falsifies_nothing() -> None:
    assert set(MAY_CHANGE) <= set(flat_keys(load_config().model_dump()))
    groups = {
        key.partition(".")[0] for key in MAY_CHANGE if key != "task.grade_workers"
    }  # how many, not what they grade
    assert not groups & {"model", "task", "objective", "pipeline", "seed"}


@pytest.mark.parametrize(
    "setting",
    ["training.lr=0.4", "pipeline.prompts_per_step=8", "seed=1", "task.options.x=1", "runtime.generators=2"],
)
def test_a_resumed_run_is_no_other_run(stopped: Path, setting: str) -> None:
    with pytest.raises(UserError, match=setting.partition("=")[0] + " cannot change within a run"):
        resumed_config(stopped, (setting,))


def test_a_resumed_run_has_as_many_generators_as_before(stopped: Path) -> None:
    assert resumed_config(stopped, ("runtime.generator_device=cuda:1",)).runtime.generator_devices == ("cuda:1",)
    with pytest.raises(UserError, match="the number of generators cannot change within a run"):
        resumed_config(stopped, ("runtime.generator_device=cpu,cpu",))


@pytest.mark.parametrize("missing", ["config.toml", "run.json"])
def test_a_folder_without_a_run_is_not_resumed(stopped: Path, missing: str) -> None:
    (stopped / missing).unlink()
    with pytest.raises(UserError, match=f"{missing} is missing"):
        resumed_config(stopped, ())


def test_a_run_without_a_checkpoint_is_not_resumed(stopped: Path) -> None:
    with pytest.raises(UserError, match="no checkpoint to resume from"):
        newest_checkpoint(stopped)
