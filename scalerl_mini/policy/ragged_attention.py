"""Attention over a flat row of tokens that belong to many sequences: no padding anywhere but inside attention itself.

Registered with `transformers` under one name. The body calls it once a layer with q, k, v of shape [1, heads, N, D]; the
`layout` that the caller of the model passes along says which tokens belong together:

    PackedSequences   whole sequences one after another, causal within each - training, rescoring
    DecodeStep        one new token for each running row, then whole prompts of rows that start - generation

Linear layers, norms and the head so never see a padding token. Inside attention the rows are laid out as
[sequences, longest] and masked there; with sequences of similar length that costs little.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

ATTENTION_NAME = "ragged"


class PackedSequences:
    """Sequences of the given lengths, one after another in a flat row of N = sum(lengths) tokens.

    `positions` [N]: position of each token in its sequence. `index` [N]: its place in the padded [S * longest] layout.
    """

    def __init__(self, lengths: Tensor) -> None:
        self.count = len(lengths)
        self.longest = int(lengths.max()) if self.count else 0
        ends = lengths.cumsum(0)
        sequence = torch.repeat_interleave(torch.arange(self.count, device=lengths.device), lengths)
        self.positions = torch.arange(int(lengths.sum()), device=lengths.device) - (ends - lengths)[sequence]
        self.index = sequence * self.longest + self.positions
        self.last = ends - 1

    def pad(self, flat: Tensor) -> Tensor:
        """[N, heads, D] -> [S, heads, longest, D], zeros where there is no token."""
        padded = flat.new_zeros(self.count * self.longest, *flat.shape[1:])
        padded = padded.index_copy(0, self.index, flat)
        return padded.view(self.count, self.longest, *flat.shape[1:]).transpose(1, 2)

    def unpad(self, padded: Tensor) -> Tensor:
        """[S, heads, longest, D] -> [N, heads, D]."""
        return padded.transpose(1, 2).flatten(0, 1).index_select(0, self.index)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layer: int, scaling: float) -> Tensor:
        """Causal attention within each sequence; q [N, H, D], k and v [N, H_kv, D] -> [N, H, D]."""
        return self._attend_padded(query, self.pad(key), self.pad(value), scaling)

    def _attend_padded(self, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        repeat = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(repeat, 1), value.repeat_interleave(repeat, 1)
        return self.unpad(F.scaled_dot_product_attention(self.pad(query), key, value, is_causal=True, scale=scaling))


class KeyValueCache:
    """Keys and values of every slot, preallocated: per layer [slots, H_kv, capacity, D] twice."""

    def __init__(self, config: Any, slots: int, capacity: int, dtype: torch.dtype, device: torch.device) -> None:
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape = (config.num_hidden_layers, slots, config.num_key_value_heads, capacity, head_dim)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)


@dataclass
class DecodeStep:
    """One engine step: the first R tokens of the flat row continue `rows`, the rest are whole prompts.

    rows [R]: slots that decode; positions [R]: place of their new token. prompts: layout of the prompt tokens, or None.
    targets [M], sources [M]: copy prompt number `sources[i]` into slot `targets[i]`; completions of one group share the
    computation of their prompt.
    """

    cache: KeyValueCache
    rows: Tensor
    positions: Tensor
    prompts: PackedSequences | None
    targets: Tensor
    sources: Tensor

    def __post_init__(self) -> None:
        self.width = int(self.positions.max()) + 1 if len(self.rows) else 0
        self.height = int(self.rows.max()) + 1 if len(self.rows) else 0
        newest = self.rows.new_zeros(self.height).index_copy(0, self.rows, self.positions)
        seen = torch.arange(self.width, device=self.rows.device) <= newest[:, None]
        self.mask = seen[:, None, None, :]

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layer: int, scaling: float) -> Tensor:
        """q [N, H, D], k and v [N, H_kv, D] -> [N, H, D]; writes k and v into the cache on the way."""
        count = len(self.rows)
        parts = []
        if count:
            parts.append(self._decode(query[:count], key[:count], value[:count], layer, scaling))
        if self.prompts is not None:
            parts.append(self._prefill(self.prompts, query[count:], key[count:], value[count:], layer, scaling))
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def _decode(self, query: Tensor, key: Tensor, value: Tensor, layer: int, scaling: float) -> Tensor:
        """Idle slots below the highest running one are computed too and ignored: gathering the cache costs far more."""
        keys, values = self.cache.keys[layer], self.cache.values[layer]
        keys[self.rows, :, self.positions] = key
        values[self.rows, :, self.positions] = value
        by_slot = query.new_zeros(self.height, *query.shape[1:]).index_copy(0, self.rows, query)
        grouped = by_slot.view(self.height, keys.shape[1], -1, query.shape[-1])
        keys, values = keys[: self.height, :, : self.width], values[: self.height, :, : self.width]
        attended = F.scaled_dot_product_attention(grouped, keys, values, self.mask, scale=scaling)
        return attended.reshape(by_slot.shape).index_select(0, self.rows)

    def _prefill(
        self, prompts: PackedSequences, query: Tensor, key: Tensor, value: Tensor, layer: int, scaling: float
    ) -> Tensor:
        padded_key, padded_value = prompts.pad(key), prompts.pad(value)
        self.cache.keys[layer][self.targets, :, : prompts.longest] = padded_key[self.sources]
        self.cache.values[layer][self.targets, :, : prompts.longest] = padded_value[self.sources]
        return prompts._attend_padded(query, padded_key, padded_value, scaling)


def _ragged_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    layout: PackedSequences | DecodeStep,
    **_: Any,
) -> tuple[Tensor, None]:
    """The attention interface of `transformers`: q [1, H, N, D], k and v [1, H_kv, N, D] -> [1, N, H, D]."""
    q, k, v = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    return layout.attend(q, k, v, int(module.layer_idx), scaling)[None], None  # type: ignore[arg-type]


ALL_ATTENTION_FUNCTIONS.register(ATTENTION_NAME, _ragged_attention)
