"""Processes and shared memory: how one trainer and its generators work on one machine without waiting in vain.

                          launcher: Supervisor (starts, watches, stops)
                             |  heartbeats, stop flag, counters: Control
          +------------------+------------------------------+
          |                                                 |
      generators --claim, commit--> RolloutBuffer --batch v--> trainer
          ^                             ^                      |  |
          |                             '---issue (a ticket of StalenessGate), free
          '------version v + 1------ WeightChannel <-----------'

The trainer is the single authority. It *issues* a ticket for each group into a free slot of the rollout buffer.
Generators load the newest weights, *claim* the lowest issued sequence, sample the group and *commit* it. The trainer
takes batch v, the sequences [vP, (v+1)P), strictly in order, trains, publishes version v + 1 in the weight channel, and
only then frees those slots and issues new tickets. gate.py proves that lag <= k and that somebody can always move.
Held-out prompts go round on an EvaluationBoard of their own. When a generator dies the launcher has what it held handed
out again and starts another; when the trainer dies all of this is thrown away and made anew from a checkpoint.

| who | waits for | unblocked by | for ever? |
|---|---|---|---|
| generator | the first version | trainer's first publish, its first act, also after a resume | no: deadline |
| generator | an issued ticket | trainer's issue, after each publish | no: deadline |
| generator | a version its ticket needs | nobody: it is published before the ticket is issued | never waits |
| generator | a place in the buffer | nobody: the ticket is the place | never waits |
| trainer | batch v | the generators' commits; a dead one's groups are issued again | no: deadline, heartbeat |
| trainer | room to publish | nobody: the buffer that is not current is always free | never waits |
| any | the rollout buffer's lock | its holder, within microseconds; the kernel when the holder dies | no |
| trainer | an evaluation | every prompt done; a dead one's prompts are handed out again | no: deadline, heartbeat |
| launcher | a lock, to give back a dead one's work | its holder; or else a new life of the run | no: deadline |
| launcher | the end of a child | the stop flag, then SIGKILL | no: grace |

Numpy and the standard library only: a launcher that uses this package imports no torch.
"""

from scalerl_mini.runtime.control import Control, Stage
from scalerl_mini.runtime.evaluation_board import EvaluationBoard
from scalerl_mini.runtime.gate import StalenessGate, Ticket
from scalerl_mini.runtime.rollout_buffer import BufferShape, ClaimLost, Finish, RolloutBuffer, SlotState
from scalerl_mini.runtime.segment import Segment
from scalerl_mini.runtime.segment_names import clear_stale, run_prefix, unlink_all
from scalerl_mini.runtime.supervisor import ChildFailed, Role, Supervisor
from scalerl_mini.runtime.waiting import Stopped, WaitTimeout, wait_until
from scalerl_mini.runtime.weight_channel import TensorSpec, WeightChannel, checksum

__all__ = [
    "BufferShape",
    "ChildFailed",
    "ClaimLost",
    "Control",
    "EvaluationBoard",
    "Finish",
    "Role",
    "RolloutBuffer",
    "Segment",
    "SlotState",
    "Stage",
    "StalenessGate",
    "Stopped",
    "Supervisor",
    "TensorSpec",
    "Ticket",
    "WaitTimeout",
    "WeightChannel",
    "checksum",
    "clear_stale",
    "run_prefix",
    "unlink_all",
    "wait_until",
]
