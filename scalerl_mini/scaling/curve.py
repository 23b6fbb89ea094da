"""A curve: pass rate against training compute, cleaned, with the measured R_0 beside it.

The unit of compute is whatever the input had; nothing here depends on it. Scores are kept as fractions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from scalerl_mini.errors import UserError
from scalerl_mini.scaling.downstream import Agreement

LOWEST = -0.05  # noise around 0 may lie below it; anything lower is not a pass rate
PERCENT_FROM = 1.05  # noise around 1 may lie above it; a largest score above this means that the column is in percent
NO_PASS_RATE = "is not a pass rate in 0..1 or 0..100; for rewards of +-1 give (reward + 1) / 2"


@dataclass(frozen=True)
class Curve:
    """Pass rate (fraction) at ascending, distinct compute > 0; `r0` is the mean measured at compute 0, if there is one."""

    compute: np.ndarray
    score: np.ndarray
    r0: float | None = None
    r0_sd: float | None = None  # standard deviation of the measured r0, if known
    name: str = ""
    x: str = "compute"
    y: str = "score"
    percent: bool = False
    notes: tuple[str, ...] = field(default=())  # what was recognised, guessed, averaged or left out
    downstream: Agreement | None = None  # of a run whose evaluations have a downstream task beside this one

    @classmethod
    def of(
        cls,
        compute: Sequence[float] | np.ndarray,
        score: Sequence[float] | np.ndarray,
        *,
        r0: float | None = None,
        r0_sd: float | None = None,
        name: str = "",
        x: str = "compute",
        y: str = "score",
        notes: Sequence[str] = (),
    ) -> Curve:
        """Clean raw points: drop non-finite ones, recognise percent, average duplicates, sort, take compute 0 as R_0.

        Raises UserError when the lengths differ or a score is not a pass rate in 0..1 or 0..100.
        """
        c, s = np.asarray(compute, float).ravel(), np.asarray(score, float).ravel()
        if c.shape != s.shape:
            raise UserError(f"{len(c)} compute values but {len(s)} scores: give one score for each compute value")
        said = list(notes)
        c, s = _finite(c, s, said)
        _check_range(s, y)
        percent = bool(len(s)) and float(s.max()) > PERCENT_FROM
        if percent:
            s = s / 100.0
            r0, r0_sd = (None if v is None else v / 100.0 for v in (r0, r0_sd))
            said.append(f"{y} read as percent")
        zero = c == 0.0
        if zero.any() and r0 is None:
            r0 = float(s[zero].mean())
            said.append(f"{int(zero.sum())} evaluation(s) at compute 0 taken as R_0 = {r0:.4g}")
        c, s = _distinct(c[~zero], s[~zero], said)
        return cls(c, s, r0, r0_sd, name, x, y, percent, tuple(said))

    def between(self, low: float, high: float) -> Curve:
        """The part with low <= compute <= high; R_0 and notes stay."""
        keep = (self.compute >= low) & (self.compute <= high)
        return replace(self, compute=self.compute[keep], score=self.score[keep])

    def thinned(self, most: int) -> Curve:
        """The same in at most `most` points: averages of neighbours, in groups of equal size (the last may be smaller)."""
        size = -(-len(self) // most)
        if size <= 1:
            return self
        first = np.arange(0, len(self), size)
        counts = np.diff(first, append=len(self))
        compute, score = (np.add.reduceat(v, first) / counts for v in (self.compute, self.score))
        said = f"{len(self)} points averaged in groups of {size}"
        return replace(self, compute=compute, score=score, notes=(*self.notes, said))

    def __len__(self) -> int:
        return len(self.compute)


def _finite(c: np.ndarray, s: np.ndarray, said: list[str]) -> tuple[np.ndarray, np.ndarray]:
    good = np.isfinite(c) & np.isfinite(s) & (c >= 0.0) & (c < 1e300) & ((c == 0.0) | (c > 1e-300))
    if not good.all():
        said.append(f"{int((~good).sum())} point(s) without a finite score and a finite compute >= 0 left out")
    return c[good], s[good]


def _check_range(s: np.ndarray, y: str) -> None:
    wrong = s[(s < LOWEST) | (s > 100.0)]
    if len(wrong):
        raise UserError(f"column {y!r}: {wrong[0]:g} {NO_PASS_RATE}")


def _distinct(c: np.ndarray, s: np.ndarray, said: list[str]) -> tuple[np.ndarray, np.ndarray]:
    values, which, counts = np.unique(c, return_inverse=True, return_counts=True)
    if len(values) < len(c):
        said.append(f"{len(c) - len(values)} repeated compute value(s) averaged")
    return values, np.bincount(which, weights=s, minlength=len(values)) / np.maximum(counts, 1)
