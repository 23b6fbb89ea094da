"""Loss aggregation: the weight of every token, for the whole optimiser batch at once (paper section 2).

    prompt   mean over prompts of (sum of the group's token terms / the group's tokens)       - ScaleRL
    sample   mean over completions of the token mean                                          - GRPO
    token    sum over the batch / all the batch's tokens                                      - DAPO's own

Only tokens of the mask count, above and below the line: padding, prompts and forced tokens have weight zero and do not
dilute the mean. A prompt or completion without any such token is no member of the mean.
"""

from __future__ import annotations

import torch
from torch import Tensor

AGGREGATIONS = ("prompt", "sample", "token")


def token_weights(mask: Tensor, group_index: Tensor, aggregation: str) -> Tensor:
    """Weights w with loss = sum(w * per-token loss); they sum to 1 over the batch (to 0 when the mask is empty).

    mask: [N, T] bool, True for trained tokens. group_index: [N] integer, equal for completions of one prompt.
    aggregation: "prompt", "sample" or "token". Returns [N, T] float32 (float64 is not needed: counts are exact).
    Raises ValueError for another aggregation.
    """
    if aggregation not in AGGREGATIONS:
        raise ValueError(f"aggregation must be one of {', '.join(AGGREGATIONS)}, got {aggregation!r}")
    tokens = mask.sum(1)
    _, member = group_index.unique(return_inverse=True)
    if aggregation == "prompt":
        group_tokens = torch.zeros(int(member.max()) + 1 if len(member) else 0, dtype=tokens.dtype, device=mask.device)
        group_tokens = group_tokens.index_add(0, member, tokens)
        row_tokens, members = group_tokens[member], int((group_tokens > 0).sum())
    elif aggregation == "sample":
        row_tokens, members = tokens, int((tokens > 0).sum())
    else:
        row_tokens, members = tokens.sum().expand(len(tokens)), 1
    per_row = 1.0 / (row_tokens.clamp(min=1).to(torch.float32) * max(members, 1))
    return torch.where(mask, per_row[:, None], torch.zeros((), device=mask.device))
