"""Supervised coroutines run again after a failure, and every failure is in the log."""

from __future__ import annotations

import asyncio
import logging

import pytest

from headgate.live.base.supervise import Backoff, supervise


def test_failed_work_is_logged_and_restarted_until_it_returns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    attempts = 0

    async def work() -> None:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise KeyError(f"attempt {attempts}")

    with caplog.at_level(logging.ERROR):
        asyncio.run(supervise("the work", work, Backoff(first_s=0)))
    assert attempts == 3
    assert [record.exc_info is not None for record in caplog.records] == [True, True]
    assert "the work failed" in caplog.text


def test_cancelling_ends_supervised_work() -> None:
    async def scenario() -> bool:
        begun = asyncio.Event()
        ended = False

        async def work() -> None:
            nonlocal ended
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended = True

        task = asyncio.create_task(supervise("the work", work))
        await begun.wait()
        task.cancel()
        await asyncio.wait({task})
        return ended and task.cancelled()

    assert asyncio.run(scenario())


def test_pauses_double_up_to_the_longest_and_start_over_after_a_steady_time() -> None:
    backoff = Backoff(first_s=1, longest_s=5, steady_s=60)
    assert [backoff.failed(after_s=0) for _ in range(5)] == [1, 2, 4, 5, 5]
    assert backoff.failed(after_s=60) == 1
    for _ in range(2000):
        assert backoff.failed(after_s=0) <= 5
