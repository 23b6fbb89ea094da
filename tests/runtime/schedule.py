"""Trainer, generators and gate as a state machine whose moves an adversary orders: for model-checking the gate.

Only what bears on the lag is modelled: which version a generator has loaded when it samples a token, and which version
the trainer has when it uses it. A weight load takes time (it starts with the version published then, and others may be
published before it ends), tokens are sampled meanwhile under the old weights, generators die at any moment and come
back with nothing loaded. `Rules` also has the two wrong rules of DESIGN.md, so that the check can be seen to bite.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from scalerl_mini.runtime.gate import StalenessGate

NOTHING = -1
Move = tuple[str, int]


@dataclass(frozen=True)
class Rules:
    """When outstanding groups are given back, and what a generator must have loaded before it takes a group.

    `admit`: "needs_version" is the ticket's own bound, which the runtime enforces; "newest" is the newest published
    version; "any" is whatever is loaded.
    """

    free_at: Literal["publish", "take"] = "publish"
    admit: Literal["needs_version", "newest", "any"] = "needs_version"


@dataclass
class Generator:
    loaded: int = NOTHING
    loading: int = NOTHING
    sequence: int = NOTHING
    tokens_left: int = 0


@dataclass
class Group:
    needs_version: int
    state: Literal["issued", "claimed", "ready"] = "issued"
    oldest: int = 10**9
    newest: int = NOTHING


@dataclass
class Schedule:
    """State of the whole pipeline; `moves` are what could happen next, `apply` makes one happen."""

    gate: StalenessGate
    generators: list[Generator]
    tokens: list[int]
    rules: Rules
    published: int = 0
    taken: bool = False
    lag: int = 0
    groups: dict[int, Group] = field(default_factory=dict)

    @classmethod
    def start(cls, prompts: int, k: int, generators: int, tokens: list[int], rules: Rules, first: int = 0) -> Schedule:
        """`tokens`: length of the groups, by sequence, repeated."""
        gate = StalenessGate(prompts, k, first)
        return cls(gate, [Generator() for _ in range(generators)], tokens, rules, published=first)

    def copy(self) -> Schedule:
        """An independent state, to try another move from here."""
        other = copy.copy(self)
        other.gate = copy.copy(self.gate)
        other.generators = [copy.copy(generator) for generator in self.generators]
        other.groups = {sequence: copy.copy(group) for sequence, group in self.groups.items()}
        return other

    def key(self) -> tuple[object, ...]:
        """Everything the future depends on, hashable."""
        groups = [(s, g.state, g.oldest, g.newest) for s, g in sorted(self.groups.items())]
        generators = [(g.loaded, g.loading, g.sequence, g.tokens_left) for g in self.generators]
        return (self.gate.version, self.gate.issued, self.published, self.taken, *generators, *groups)

    def moves(self) -> list[Move]:
        """Moves that lead on, deaths excluded."""
        moves: list[Move] = [("issue", 0)] if self.gate.may_issue() else []
        if self.taken:
            moves.append(("publish", 0))
        elif all(s in self.groups and self.groups[s].state == "ready" for s in self.gate.batch(self.published)):
            moves.append(("take", 0))
        for index, generator in enumerate(self.generators):
            if generator.loading != NOTHING:
                moves.append(("loaded", index))
            elif generator.loaded < self.published:
                moves.append(("load", index))
            if generator.sequence != NOTHING:
                moves.append(("token", index))
            elif self._claimable(generator) is not None:
                moves.append(("claim", index))
        return moves

    def apply(self, move: Move) -> None:
        """Make one move happen."""
        kind, index = move
        getattr(self, "_" + kind)(self.generators[index])

    def die(self, index: int) -> None:
        """SIGKILL of a generator: its group is issued again, it comes back with nothing loaded."""
        sequence = self.generators[index].sequence
        if sequence != NOTHING:
            self.groups[sequence] = Group(self.groups[sequence].needs_version)
        self.generators[index] = Generator()

    def _claimable(self, generator: Generator) -> int | None:
        issued = [sequence for sequence, group in self.groups.items() if group.state == "issued"]
        if not issued or generator.loaded == NOTHING:
            return None
        needed = {"needs_version": self.groups[min(issued)].needs_version, "newest": self.published, "any": 0}
        return min(issued) if generator.loaded >= needed[self.rules.admit] else None

    def _issue(self, _: Generator) -> None:
        ticket = self.gate.issue()
        self.groups[ticket.sequence] = Group(ticket.needs_version)

    def _load(self, generator: Generator) -> None:
        generator.loading = self.published

    def _loaded(self, generator: Generator) -> None:
        generator.loaded, generator.loading = generator.loading, NOTHING

    def _claim(self, generator: Generator) -> None:
        sequence = self._claimable(generator)
        assert sequence is not None
        generator.sequence = sequence
        generator.tokens_left = self.tokens[sequence % len(self.tokens)]
        self.groups[sequence].state = "claimed"

    def _token(self, generator: Generator) -> None:
        group = self.groups[generator.sequence]
        group.oldest, group.newest = min(group.oldest, generator.loaded), max(group.newest, generator.loaded)
        generator.tokens_left -= 1
        if generator.tokens_left == 0:
            group.state = "ready"
            generator.sequence = NOTHING

    def _take(self, _: Generator) -> None:
        self.taken = True
        for sequence in self.gate.batch(self.published):
            group = self.groups.pop(sequence)
            assert group.newest <= self.published
            self.lag = max(self.lag, self.published - group.oldest)
        if self.rules.free_at == "take":
            self.gate.publish(self.published + 1)

    def _publish(self, _: Generator) -> None:
        self.taken = False
        self.published += 1
        if self.rules.free_at == "publish":
            self.gate.publish(self.published)


def run_random(schedule: Schedule, steps: int, random: Random, death_rate: float) -> int:
    """Let random actors of random speeds move until `steps` versions are out; returns the greatest lag of any token."""
    speed = {index: 10 ** random.uniform(-2, 1) for index in range(-1, len(schedule.generators))}
    last = schedule.published + steps
    moves_left = 20_000 + 3_000 * steps
    while schedule.published < last:
        moves = schedule.moves()
        assert moves, f"deadlock: nobody can move in {schedule.key()}"
        assert moves_left > 0, f"no progress: {schedule.key()}"
        moves_left -= 1
        if random.random() < death_rate:
            schedule.die(random.randrange(len(schedule.generators)))
            continue
        actors = [-1 if kind in ("issue", "take", "publish") else index for kind, index in moves]
        schedule.apply(random.choices(moves, [speed[actor] for actor in actors])[0])
    return schedule.lag
