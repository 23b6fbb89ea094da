import shutil
from pathlib import Path

import pytest

from tests.mutants import MUTANTS, ROOT, Mutant, apply


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.invariant}-{mutant.file}")
def test_the_catalogue_fits_the_source(mutant: Mutant, tmp_path: Path) -> None:
    copy = tmp_path / "scalerl_mini" / mutant.file
    copy.parent.mkdir(parents=True)
    shutil.copy(ROOT / "scalerl_mini" / mutant.file, copy)
    apply(mutant, tmp_path)
    assert copy.read_text() != (ROOT / "scalerl_mini" / mutant.file).read_text()
    compile(copy.read_text(), str(copy), "exec")


def test_every_invariant_has_a_mutant() -> None:
    assert {mutant.invariant for mutant in MUTANTS} == set(range(1, 11))
