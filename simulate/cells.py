"""The cells of a validation: every combination of what was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from scalerl_mini.errors import UserError
from simulate.curves import Spec
from simulate.scoring import Cell


def cells_of(
    sigmas: Sequence[float] = (),
    phis: Sequence[float] = (),
    ratios: Sequence[float] = (),
    counts: Sequence[str] = (),
    r0s: Sequence[str] = (),
    cutoffs: Sequence[float] = (),
    laws: Sequence[str] = (),
    faults: Sequence[str] = (),
    robust: bool = False,
    rivals: bool = False,
    pairs: bool = False,
) -> list[Cell]:
    """All combinations; what is empty takes its default (see `simulate validate --help`)."""
    axes = product(
        laws or ("sigmoid",), faults or ("none",), sigmas or (None,), ratios or (None,), counts or ("16-75",),
        cutoffs or (0.1,), phis or (0.0, 0.3, 0.5, 0.8), r0s or ("free", "measured"),
    )  # fmt: skip
    cells = []
    for law, fault, sigma, ratio, n, cutoff, phi, r0 in axes:
        low, high = _range(n)
        spec = Spec(
            law=law, phi=phi, sigma=sigma, ratio=ratio, n_range=(low, high), ratio_range=(1.0, 8.0),
            sigma_range=(0.003, 0.01), faults=() if fault == "none" else tuple(fault.split("+")),
        )  # fmt: skip
        cells.append(Cell(spec, r0, cutoff, robust, rivals, pairs))
    return cells


def _range(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    try:
        pair = int(low), int(high or low)
    except ValueError as error:
        raise UserError(f"--n {text!r}: give a number of evaluations or a range such as 16-75") from error
    if not 1 <= pair[0] <= pair[1]:
        raise UserError(f"--n {text!r}: the range must run upwards from 1")
    return pair
