"""What every process of a run is told at its start. No torch here: the launcher builds it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scalerl_mini.config import Config
from scalerl_mini.runtime import segment

TRAINER = "trainer"


@dataclass(frozen=True)
class RunSpec:
    """The configuration, where the run lives, and the prefix of its shared memory.

    control: path of the control block. start_model: folder of the model the run began with. resume: checkpoint to
    continue, or None.
    """

    config: Config
    folder: Path
    control: Path
    prefix: str
    start_model: Path
    resume: Path | None

    @property
    def model(self) -> Path:
        """Folder of the weights that the trainer loads at its start; a checkpoint is gone when newer ones are there. LoRA
        adapters belong beside the weights that they were trained beside, those of the start model."""
        return self.start_model if self.config.model.lora_rank else self.resume or self.start_model

    def segment_path(self, name: str) -> Path:
        """Where a segment of this run lies: in shared memory, or in the run folder where that was too small."""
        path = segment.SHM_DIR / f"{self.prefix}.{name}"
        return path if path.exists() else self.folder / path.name

    @property
    def file_backed(self) -> list[Path]:
        """Segments that lie in the run folder."""
        return sorted(self.folder.glob(f"{self.prefix}.*"))


def generator_roles(config: Config) -> list[str]:
    """Names of the generator processes."""
    return [f"generator-{number}" for number in range(len(config.runtime.generator_devices))]
