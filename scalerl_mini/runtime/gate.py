"""The staleness gate: why no trained token is older than k policy versions, and why nobody waits for ever.

One rule, four lines of arithmetic, no process and no clock: the trainer uses it for real and `simulate` model-checks
it over random schedules. The paper only says that trainers wait when they get k steps ahead; how that is counted is
our choice: the lag of the *oldest token* of every trained group.

Rules, with P groups a step and sequences 0, 1, 2, ... in issue order:

1. Batch v is the sequences [vP, (v+1)P), trained by the weights of version v, which makes version v + 1.
2. With version v published, sequences below (v + k + 1) P may be issued: at most (k + 1) P are outstanding.
   A batch stops being outstanding when the version it makes is *published*, not when it is taken.
3. A group of batch b is sampled by a generator that has loaded version max(0, b - k) or later before it submits it.

Lag <= k. Take a token of batch b. By 3 it was sampled by version w >= b - k (loads only go forward). Nothing later
than b exists while b is untrained, so w <= b. It is trained by version b: lag = b - w, between 0 and k.

Rule 3 can always be obeyed. The group was issued under a published version v with b <= v + k, so version b - k <= v
is in the weight channel already: no generator waits for a version that is not there.

No deadlock. Let v be the latest version. Batch v satisfies vP <= s < (v+1)P <= (v+k+1)P, so the trainer may issue all
of it (its slots are free: the outstanding sequences are one contiguous range of at most (k + 1) P). Each of its groups
needs a version <= v, which any generator can load at once. Generators claim the lowest sequence first and finish a
group in finite time without waiting for anybody; a dead generator's groups are issued again under their old number.
So batch v becomes whole, the trainer trains it, publishes v + 1, and the argument repeats.

Two rules that look the same and are not: freeing slots when the batch is *taken* admits groups under version v that
are used at v + k + 1 (lag k + 1); admitting a group before loading the newest weights leaves lag unbounded.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ticket:
    """The right to sample one group: its place in the order, and the oldest version that may sample it."""

    sequence: int
    needs_version: int


class StalenessGate:
    """Counts issued sequences against published versions.

    Attributes:
        version: latest published policy version.
        issued: the next sequence to be issued.
    """

    def __init__(self, prompts_per_step: int, k: int, first_version: int = 0) -> None:
        """`first_version` > 0 resumes a run: sequences go on at first_version * prompts_per_step."""
        if prompts_per_step < 1 or k < 0 or first_version < 0:
            raise ValueError(f"need prompts_per_step >= 1, k >= 0, first_version >= 0: {prompts_per_step}, {k}, "
                             f"{first_version}")  # fmt: skip
        self.prompts_per_step = prompts_per_step
        self.k = k
        self.version = first_version
        self.issued = first_version * prompts_per_step

    @property
    def capacity(self) -> int:
        """Most groups that can be outstanding: the slots a rollout buffer needs, (k + 1) P."""
        return (self.k + 1) * self.prompts_per_step

    @property
    def outstanding(self) -> int:
        """Groups issued whose batch has not yet become a published version, 0 ... capacity."""
        return self.issued - self.version * self.prompts_per_step

    def may_issue(self) -> int:
        """How many tickets may be issued now."""
        return self.capacity - self.outstanding

    def issue(self) -> Ticket:
        """Issue the next sequence; RuntimeError when that would let it age past k."""
        if self.may_issue() == 0:
            raise RuntimeError(f"sequence {self.issued} may not be issued before version {self.version + 1} is out")
        self.issued += 1
        return self.ticket(self.issued - 1)

    def ticket(self, sequence: int) -> Ticket:
        """The ticket of a sequence that is issued now or, with another prompt, was issued before."""
        return Ticket(sequence, max(0, sequence // self.prompts_per_step - self.k))

    def batch(self, version: int) -> range:
        """The sequences that version `version` trains on, oldest first."""
        return range(version * self.prompts_per_step, (version + 1) * self.prompts_per_step)

    def publish(self, version: int) -> None:
        """Version `version` is in the weight channel, so the batch that made it is no longer outstanding.

        RuntimeError when a version is skipped or repeated, or when its batch was never issued.
        """
        if version != self.version + 1:
            raise RuntimeError(f"version {version} cannot follow version {self.version}")
        if self.outstanding < self.prompts_per_step:
            raise RuntimeError(f"version {version} cannot be out: its batch was issued only to {self.issued}")
        self.version = version
