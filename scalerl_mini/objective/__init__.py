"""Rewards -> advantages -> token weights -> loss: pure functions on tensors, the ScaleRL objective in three steps.

    advantages, keep = group_advantages(rewards, "batch")            # [P, G] -> [P, G], [P]
    weights          = token_weights(mask, group_index, "prompt")    # [N, T]
    loss             = policy_loss(logprobs, behavior_logprobs, advantages, weights, mask, kind="cispo").loss

The weights are computed once on the whole optimiser batch; a micro-batch passes its rows of them, and the losses of all
micro-batches are simply summed. Nothing divides later, so the gradient does not depend on how the batch was cut.
Nothing but torch is imported here.
"""

from scalerl_mini.objective.advantages import group_advantages
from scalerl_mini.objective.aggregation import token_weights
from scalerl_mini.objective.losses import LOSSES, PolicyLoss, policy_loss

__all__ = ["LOSSES", "PolicyLoss", "group_advantages", "policy_loss", "token_weights"]
