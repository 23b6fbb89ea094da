"""Several short sequences in one row, so that a batch of mixed lengths is not mostly padding.

Rows are filled first-fit, longest sequence first. Attention is block-diagonal and positions restart with each sequence,
so a packed sequence sees exactly what it would see alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

IGNORED = -100


@dataclass(frozen=True, slots=True)
class Example:
    """Token ids of prompt and completion; the first `prompt_length` ids are read but not learned."""

    ids: Sequence[int]
    prompt_length: int


@dataclass(frozen=True, slots=True)
class PackedRows:
    """`input_ids`, `position_ids`, `targets` [R, T] and `attention` [R, 1, T, T] (0 where allowed, -inf elsewhere).

    `targets[r, t]` is the id that should follow `input_ids[r, t]`, or IGNORED where there is nothing to learn.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    targets: torch.Tensor
    attention: torch.Tensor


def pack(examples: Sequence[Example], width: int, pad_id: int) -> PackedRows:
    """Pack `examples` into rows of `width` tokens; each must fit into one row."""
    rows = _assign(examples, width)
    shape = (len(rows), width)
    input_ids = torch.full(shape, pad_id)
    position_ids = torch.zeros(shape, dtype=torch.long)
    targets = torch.full(shape, IGNORED)
    block = torch.full(shape, -1)
    for r, row in enumerate(rows):
        start = 0
        for number, example in enumerate(row):
            ids = torch.tensor(example.ids)
            end = start + len(ids)
            input_ids[r, start:end] = ids
            position_ids[r, start:end] = torch.arange(len(ids))
            targets[r, start + example.prompt_length - 1 : end - 1] = ids[example.prompt_length :]
            block[r, start:end] = number
            start = end
    return PackedRows(input_ids, position_ids, targets, _block_attention(block))


def _assign(examples: Sequence[Example], width: int) -> list[list[Example]]:
    rows: list[list[Example]] = []
    room: list[int] = []
    for example in sorted(examples, key=lambda item: -len(item.ids)):
        length = len(example.ids)
        if length > width:
            raise ValueError(f"a sequence of {length} tokens does not fit into a row of {width}")
        fit = next((index for index, free in enumerate(room) if free >= length), None)
        if fit is None:
            rows.append([])
            room.append(width)
            fit = len(rows) - 1
        rows[fit].append(example)
        room[fit] -= length
    return rows


def _block_attention(block: torch.Tensor) -> torch.Tensor:
    """Additive mask [R, 1, T, T]: causal within a block; padding attends to padding, lest a row be all -inf."""
    allowed = (block[:, :, None] == block[:, None, :]).tril()
    return torch.zeros(allowed.shape).masked_fill(~allowed, float("-inf"))[:, None]
