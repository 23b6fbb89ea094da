"""`scalerl-mini train` and bad input: exit 2, one line that says what, where and how to mend it, and nothing created.

Most cases call the entry point in this process; a few start it as a user does. This suite may run as root, to whom every
folder is writable: an unwritable place is one under /proc, or under a file.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scalerl_mini import cli
from scalerl_mini.config import dump_toml, load_config
from scalerl_mini.runtime import segment
from scalerl_mini.training.preflight import MODELS

QUICK = "task.options={train_prompts=20, held_out_prompts=20}"
THINKING = "rollout.interruption={min_tokens=40, max_tokens=40}"
FEW = ("--set", QUICK, "--set", THINKING, "--set", "evaluation.prompts=10", "--set", "pipeline.prompts_per_step=4")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, and no way to the hub."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path


@pytest.fixture(autouse=True)
def no_process_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """A case that passes all checks must fail here, not train."""

    def refuse(*_: object) -> None:
        raise AssertionError("the run was started")

    monkeypatch.setattr("scalerl_mini.training.launcher._supervise", refuse)


def call(*arguments: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["scalerl-mini", "train", *arguments])
        cli.main()


def train(*arguments: str) -> int:
    """Call the entry point; returns the exit code."""
    with pytest.raises(SystemExit) as ending:
        call(*arguments)
    assert isinstance(ending.value.code, int)
    return ending.value.code


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def refuse(capsys: pytest.CaptureFixture[str], place: Path, message: str, *arguments: str) -> None:
    """The entry point refuses these arguments with `message`, and leaves everything as it was."""
    before = everything(place)
    assert train(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1, captured.err
    assert message in captured.err
    assert everything(place) == before
    assert not list(segment.SHM_DIR.glob(f"scalerl-{os.getpid()}-*"))


# What the command line gets wrong.

COMMAND_LINES: list[tuple[str, tuple[str, ...]]] = [
    ("No such option '--lr'", ("--lr", "3")),
    ("Option '--set' requires an argument", ("--set",)),
    ("unexpected extra argument (runs/first)", ("runs/first",)),
    ("'x' is not a valid integer range", ("--seed", "x")),
    ("-1 is not in the range x>=0", ("--seed", "-1")),
    ("write it as group.key=value", ("--set", "steps")),
    ("write it as group.key=value", ("--set", "=5")),
    ("unknown configuration key training.step in --set", ("--set", "training.step=5")),
    ("unknown configuration key rollout.interruption.on in --set", ("--set", "rollout.interruption.on=true")),
    ("valid integer, got 'many'", ("--set", "training.steps=many")),
    ("greater than or equal to 1, got 0", ("--set", "training.steps=0")),
    ("min_tokens (50) must not be above max_tokens", ("--set", "rollout.interruption.min_tokens=50")),
    ("cannot read configuration absent.toml: No such file", ("--config", "absent.toml")),
    ("cannot read configuration .: Is a directory", ("--config", ".")),
    ("leave --out, --config, --recipe and --overwrite away", ("--resume", "a", "--out", "b")),
    ("leave --out, --config, --recipe and --overwrite away", ("--resume", "a", "--overwrite")),
    ("no run there (config.toml is missing); check the path", ("--resume", "absent")),
]


@pytest.mark.parametrize(("message", "arguments"), COMMAND_LINES)
def test_a_wrong_command_line(capsys: pytest.CaptureFixture[str], place: Path, message: str, arguments) -> None:
    refuse(capsys, place, message, *arguments)


FILES = [
    ("unknown configuration key learning_rate in c.toml", "learning_rate = 1"),
    ("unknown configuration key training.learning_rate in c.toml", "[training]\nlearning_rate = 1"),
    ("key pipeline.k in c.toml: Input should be a valid integer, got 'four'", "[pipeline]\nk = 'four'"),
    ("configuration key pipeline in c.toml is a group", "pipeline = 4"),
    ("configuration c.toml is not valid TOML", "[pipeline"),
]


@pytest.mark.parametrize(("message", "content"), FILES)
def test_a_wrong_file(capsys: pytest.CaptureFixture[str], place: Path, message: str, content: str) -> None:
    (place / "c.toml").write_text(content)
    refuse(capsys, place, message, "--config", "c.toml")


# Settings that do not go together, with each other or with the model and the task.

CONTRADICTIONS = [
    ("pipeline.prompts_per_step = 21 is larger than the training set of task arithmetic (20 prompts)",
     "pipeline.prompts_per_step=21"),
    ("evaluation.prompts = 21 but task arithmetic holds out 20 prompts; set evaluation.prompts=20", "evaluation.prompts=21"),
    ("rollout.group_size = 8 does not fit rollout.slots = 7; raise the slots", "rollout.slots=7"),
    ("evaluation.samples = 193 does not fit rollout.slots = 192", "evaluation.samples=193"),
    ("need a context of 264, the model has 256; lower rollout.max_new_tokens to 240", "rollout.max_new_tokens=248"),
    ("leaves no room for an answer after interruption.max_tokens = 40 and the phrase", "rollout.max_new_tokens=41"),
    ("rollout.interruption.phrase = '' has no tokens; set it, or set enabled to false", "rollout.interruption.phrase="),
    ("cannot encode 'Time is up'", "rollout.interruption.phrase=Time is up"),
    ("task.name: 'chess' is unknown; use one of arithmetic", "task.name=chess"),
    ("task.name: 'no.such:Task' cannot be loaded", "task.name=no.such:Task"),
    ("task options of 'arithmetic': got an unexpected keyword argument 'digits'; its options are: train_prompts",
     "task.options.digits=3"),
    ("task.options.train_prompts: 'x' is not a whole number", "task.options.train_prompts=x"),
    ("is no range within 1..12; set min_digits <= max_digits", "task.options.min_digits=9"),
    ("there are not enough different 1-digit problems", "task.options={min_digits=1, max_digits=1}"),
    ("runtime.trainer_device = 'tpu' is not a device; write cpu, cuda:0", "runtime.trainer_device=tpu"),
    ("runtime.generator_device = 'cuda:99' is not on this machine", "runtime.generator_device=cuda:99"),
    ("model.name = 'builtin:huge' is unknown; built in: builtin:tiny-adder", "model.name=builtin:huge"),
    ("model folder ./absent does not exist; set model.name to a Hugging Face folder", "model.name=./absent"),
    ("is neither a folder here nor to be had from the hub", "model.name=nobody/nothing"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "setting"), CONTRADICTIONS)
def test_settings_that_cannot_work(capsys: pytest.CaptureFixture[str], place: Path, message: str, setting: str) -> None:
    refuse(capsys, place, message, *FEW, "--set", setting)


OWN_TASKS = [
    ("SyntaxError", "class Mine(:"),
    ("ZeroDivisionError", "1 / 0\nclass Mine: pass"),
    ("is no Task; it needs name, train, held_out and grade", "class Mine: pass"),
    ("prompt '' has no tokens", """
from scalerl_mini.tasks import Prompt
class Mine:
    name = "mine"
    train = held_out = [Prompt("", "", "easy")] * 20
    def grade(self, prompt, completion): return 1.0
"""),
]  # fmt: skip


@pytest.mark.parametrize(("message", "source"), OWN_TASKS)
def test_a_task_of_ones_own_that_is_none(
    capsys: pytest.CaptureFixture[str], place: Path, message: str, source: str
) -> None:
    (place / "mine.py").write_text(source)
    refuse(capsys, place, message, *FEW, "--set", "task.name=mine.py:Mine", "--set", "task.options={}")


# Model folders that are none.


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1000])


BROKEN_MODELS: list[tuple[str, Callable[[Path], object]]] = [
    ("has no config.json; it must be a Hugging Face model folder", lambda folder: (folder / "config.json").unlink()),
    ("is not valid JSON", lambda folder: truncate(folder / "config.json") or (folder / "config.json").write_text("{")),
    ("has no *.safetensors weights, only pytorch_model.bin: pickle can run code and is never loaded; convert",
     lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin")),
    ("cannot be read", lambda folder: truncate(folder / "model.safetensors")),
    ("has no tokenizer that can be read", lambda folder: (folder / "tokenizer.json").write_text("{}")),
    ("has no tokenizer that can be read", lambda folder: [p.unlink() for p in folder.glob("tokenizer*")]),
]  # fmt: skip


@pytest.mark.parametrize(("message", "damage"), BROKEN_MODELS)
def test_a_model_folder_that_is_none(
    capsys: pytest.CaptureFixture[str], place: Path, message: str, damage: Callable[[Path], object]
) -> None:
    folder = place / "model"
    shutil.copytree(MODELS / "tiny-adder", folder)
    damage(folder)
    refuse(capsys, place, message, *FEW, "--set", f"model.name={folder}")


# Places where no run can be.


def make_run(folder: Path) -> None:
    """A run folder without a checkpoint."""
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "config.toml").write_text(dump_toml(load_config(None, (QUICK, "evaluation.prompts=10"))))
    (folder / "run.json").write_text('{"state": "stopped"}')


def test_an_existing_run(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    make_run(place / "run")
    refuse(capsys, place, "already holds a run; continue it with --resume run, replace it with --overwrite",
           *FEW, "--out", "run")  # fmt: skip


def test_a_folder_with_other_things_is_not_overwritten(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    (place / "photos").mkdir()
    (place / "photos" / "1.jpg").touch()
    refuse(capsys, place, "is not empty and not a run; choose another --out", *FEW, "--out", "photos", "--overwrite")


def test_a_file_in_the_way(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    (place / "out").touch()
    refuse(capsys, place, "output folder out is a file; choose another --out", *FEW, "--out", "out")
    refuse(capsys, place, "cannot create run folder out/run: Not a directory", *FEW, "--out", "out/run")


def test_an_unwritable_place(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    refuse(capsys, place, "choose another --out", *FEW, "--out", "/proc/scalerl-run")


def test_a_run_without_a_checkpoint(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    make_run(place / "run")
    refuse(capsys, place, "run has no checkpoint to resume from; start anew with --out", "--resume", "run")


def test_a_resumed_run_with_other_settings(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    make_run(place / "run")
    refuse(capsys, place, "training.lr cannot change within a run", "--resume", "run", "--set", "training.lr=1.0")
    refuse(capsys, place, "seed cannot change within a run", "--resume", "run", "--seed", "5")


def test_good_input_gets_past_all_of_this(place: Path) -> None:
    """Otherwise the cases above could be refused for any reason."""
    with pytest.raises(AssertionError, match="the run was started"):
        call(*FEW, "--out", "run")
    assert '"state": "failed"' in (place / "run" / "run.json").read_text()


# As a user does it.


@pytest.fixture
def command() -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        entry = "import sys; from scalerl_mini.cli import main; sys.argv[0] = 'scalerl-mini'; sys.exit(main())"
        return subprocess.run([sys.executable, "-c", entry, *arguments], capture_output=True, text=True, check=False)

    return run


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("unknown configuration key training.step", ("train", "--set", "training.step=5")),
        ("No such option '--lr'", ("train", "--lr", "5")),
        ("No such command 'trian'", ("trian",)),
        ("model folder /absent does not exist", ("train", "--set", "model.name=/absent", "--out", "run")),
    ],
)
def test_from_outside(command, place: Path, message: str, arguments: tuple[str, ...]) -> None:
    done = command(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert everything(place) == []


def test_a_dry_run_prints_what_a_run_would_do_and_does_nothing(command, place: Path) -> None:
    done = command("train", "--dry-run", "--seed", "7", "--set", "training.steps=3", "--trainer-device", "cuda:1")
    assert (done.returncode, done.stderr) == (0, "")
    (place / "printed.toml").write_text(done.stdout)
    expected = load_config(None, ("seed=7", "training.steps=3", "runtime.trainer_device=cuda:1"))
    assert load_config(place / "printed.toml") == expected
    assert everything(place) == ["printed.toml"]
