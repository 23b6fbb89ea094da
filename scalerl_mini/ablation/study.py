"""A study: every variant with every seed is one run folder, and study.json says what they have in common.

OUT/
  study.json                 base recipe, settings, variants, seeds
  VARIANT/seed-N/            run folder
  VARIANT/seed-N.toml, .log  what the run was started with, and what it said
  by-COLUMN/                 the ranking over one compute column: ranking.md, ranking.json, curves.png, efficiency.png
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from scalerl_mini.ablation.variants import Variant
from scalerl_mini.config import Config, dump_toml, load_config
from scalerl_mini.errors import UserError


@dataclass(frozen=True)
class Study:
    """folder: where it lives. recipe, settings: the base of every variant. seeds: one run each."""

    folder: Path
    recipe: str | None
    settings: tuple[str, ...]
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...]

    @classmethod
    def read(cls, folder: Path) -> Study:
        """The study that study.json describes. Raises UserError when there is none."""
        path = folder / "study.json"
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            variants = tuple(Variant(v["name"], v["recipe"], tuple(v["settings"])) for v in record["variants"])
            return cls(folder, record["recipe"], tuple(record["settings"]), variants, tuple(record["seeds"]))
        except OSError:
            raise UserError(
                f"no study in {folder} yet; say what to compare with --variants, --grid or --variant"
            ) from None
        except (ValueError, KeyError, TypeError):
            raise UserError(f"{path} is no record of a study; choose another --out") from None

    def config(self, variant: Variant, seed: int) -> Config:
        """The configuration of one run. Raises UserError, with the variant's name, when it contradicts the base."""
        settings = (*self.settings, *variant.settings, f"seed={seed}")
        try:
            return load_config(None, settings, variant.recipe or self.recipe)
        except UserError as error:
            raise UserError(f"variant {variant.name}: {error}") from None

    def run_folder(self, variant: Variant, seed: int) -> Path:
        """Where a run lives."""
        return self.folder / variant.name / f"seed-{seed}"

    def runs(self) -> list[tuple[Variant, int]]:
        """All runs, seed by seed, so that an interrupted study has every variant before any has a second seed."""
        return [(variant, seed) for seed in self.seeds for variant in self.variants]

    def check(self) -> None:
        """Raise UserError when a variant cannot run, or when two are the same configuration (only noise would differ)."""
        seen: dict[str, str] = {}
        for variant in self.variants:
            other = seen.setdefault(dump_toml(self.config(variant, 0)), variant.name)
            if other != variant.name:
                raise UserError(f"variants {other} and {variant.name} are the same configuration; leave one out")

    def write(self) -> None:
        """Write study.json. A study that is there already may gain variants and seeds, but its base and the variants it
        has must be the same (UserError)."""
        path, whole = self.folder / "study.json", self
        if path.exists():
            whole = self._joined(Study.read(self.folder))
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            record = {key: value for key, value in asdict(whole).items() if key != "folder"}
            path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}; choose another --out") from None

    def _joined(self, before: Study) -> Study:
        known = {variant.name: variant for variant in before.variants}
        if (before.recipe, before.settings) != (self.recipe, self.settings):
            raise UserError(f"{self.folder} holds a study with another --recipe or --set; choose another --out")
        for variant in self.variants:
            if known.setdefault(variant.name, variant) != variant:
                raise UserError(f"{self.folder} holds another variant {variant.name!r}; choose another --out or name")
        return replace(self, variants=tuple(known.values()), seeds=tuple(sorted({*before.seeds, *self.seeds})))
