from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalerl_mini.runtime.gate import StalenessGate, Ticket

sizes = st.integers(1, 7)
lags = st.integers(0, 8)
versions = st.integers(0, 20)


def test_by_hand_two_prompts_a_step_and_k_one() -> None:
    gate = StalenessGate(2, 1)
    assert gate.may_issue() == gate.capacity == 4
    assert [gate.issue() for _ in range(4)] == [Ticket(0, 0), Ticket(1, 0), Ticket(2, 0), Ticket(3, 0)]
    assert gate.may_issue() == 0
    assert gate.outstanding == 4
    gate.publish(1)
    assert gate.may_issue() == 2
    assert [gate.issue() for _ in range(2)] == [Ticket(4, 1), Ticket(5, 1)]
    assert gate.batch(2) == range(4, 6)


def test_k_zero_is_synchronous() -> None:
    gate = StalenessGate(3, 0)
    for version in range(5):
        assert [gate.issue() for _ in range(gate.may_issue())] == [Ticket(s, version) for s in gate.batch(version)]
        gate.publish(version + 1)


def test_issue_beyond_the_bound_is_refused() -> None:
    gate = StalenessGate(1, 0)
    gate.issue()
    with pytest.raises(RuntimeError, match="sequence 1 may not be issued before version 1"):
        gate.issue()


@pytest.mark.parametrize("version", [0, 2, 5])
def test_a_version_out_of_order_is_refused(version: int) -> None:
    gate = StalenessGate(1, 8)
    for _ in range(gate.may_issue()):
        gate.issue()
    with pytest.raises(RuntimeError, match="cannot follow version 0"):
        gate.publish(version)


def test_a_version_whose_batch_was_not_issued_is_refused() -> None:
    gate = StalenessGate(2, 1)
    gate.issue()
    with pytest.raises(RuntimeError, match="issued only to 1"):
        gate.publish(1)


@pytest.mark.parametrize("arguments", [(0, 1, 0), (1, -1, 0), (1, 1, -1)])
def test_nonsense_is_refused(arguments: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="prompts_per_step >= 1"):
        StalenessGate(*arguments)


@given(sizes, lags, versions)
def test_a_resumed_gate_goes_on_at_the_trained_frontier(prompts: int, k: int, first: int) -> None:
    gate = StalenessGate(prompts, k, first)
    assert gate.outstanding == 0
    tickets = [gate.issue() for _ in range(gate.may_issue())]
    assert [ticket.sequence for ticket in tickets] == list(range(first * prompts, (first + k + 1) * prompts))
    assert all(ticket.needs_version <= first for ticket in tickets)


@given(sizes, lags, versions, st.lists(st.booleans(), max_size=200))
def test_under_any_order_of_moves_the_bounds_hold(prompts: int, k: int, first: int, moves: list[bool]) -> None:
    """Issue or publish whenever possible: the arithmetic of the proof in gate.py, step by step."""
    gate = StalenessGate(prompts, k, first)
    expected = first * prompts
    for want_issue in moves:
        can_issue, can_publish = gate.may_issue() > 0, gate.outstanding >= prompts
        assert can_issue or can_publish
        if (want_issue and can_issue) or not can_publish:
            ticket = gate.issue()
            batch = ticket.sequence // prompts
            assert ticket.sequence == expected
            assert ticket.sequence in gate.batch(batch)
            assert batch - k <= ticket.needs_version <= gate.version
            expected += 1
        else:
            gate.publish(gate.version + 1)
        assert 0 <= gate.outstanding <= gate.capacity == (k + 1) * prompts
        assert set(gate.batch(gate.version)) <= set(range(gate.issued)) or gate.may_issue()
