"""What a move costs, and when it pays."""

from __future__ import annotations

from headgate.planning.moves.price import MovePrice, pays


def test_move_costs_lost_work_state_and_resuming_on_each_gpu() -> None:
    price = MovePrice(state_bytes=40e9, bytes_per_s=2e9, resume_s=15.0)
    assert price.move_cost_s(4, 100.0) == 4 * (100 + 20 + 15)
    assert price.move_cost_s(4, 0.0) == 4 * (20 + 15), "saved on notice"


def test_moves_pay_while_they_cost_less_than_the_wait_of_all_gpus() -> None:
    assert pays(799.0, wait_s=100.0, gpus=8)
    assert not pays(800.0, wait_s=100.0, gpus=8)
