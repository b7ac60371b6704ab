"""Neither a slow receiver nor one that is down delays who has something to deliver."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from deltaworks.traces.deliveries import Deliveries


def test_all_arrive_in_order() -> None:
    arrived: list[int] = []
    deliveries: Deliveries[int] = Deliveries(lambda item: arrived.append(item), "there")
    for number in range(50):
        deliveries.put(number)
    deliveries.close()

    assert arrived == [*range(50)]
    assert deliveries.dropped == 0


def test_a_receiver_that_hangs_delays_nobody_and_what_does_not_fit_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    let_on, arrived = threading.Event(), []

    def deliver(item: int) -> None:
        let_on.wait(30)
        arrived.append(item)

    deliveries: Deliveries[int] = Deliveries(deliver, "there", capacity=4)
    begun = time.monotonic()
    with caplog.at_level(logging.WARNING):
        deliveries.put(0)
        while deliveries._waiting:
            time.sleep(0.001)
        for number in range(1, 11):
            deliveries.put(number)
        assert time.monotonic() - begun < 5
        assert deliveries.dropped == 6
        let_on.set()
        deliveries.close()

    assert arrived == [0, 1, 2, 3, 4]
    full, again = (record.getMessage() for record in caplog.records)
    assert full.startswith("traces are not delivered to there: they come faster than they can be delivered.")
    assert again == "traces are delivered to there again; those of 6 batches were dropped"


@pytest.mark.parametrize("raises", [False, True])
def test_the_log_says_once_that_a_receiver_is_down_and_once_that_it_is_back(
    caplog: pytest.LogCaptureFixture, raises: bool
) -> None:
    is_down = True

    def deliver(item: int) -> str | None:
        if is_down and raises:
            raise OSError("no route")
        return "no route" if is_down else None

    deliveries: Deliveries[int] = Deliveries(deliver, "there")

    def put(number: int, dropped: int) -> None:
        for each in range(number):
            deliveries.put(each)
        deadline = time.monotonic() + 10
        while (deliveries._waiting or deliveries._going_out) and time.monotonic() < deadline:
            time.sleep(0.001)
        assert deliveries.dropped == dropped

    with caplog.at_level(logging.WARNING):
        put(7, 7)
        is_down = False
        put(5, 7)
        is_down = True
        put(2, 9)
        deliveries.close()

    problem = "OSError: no route" if raises else "no route"
    down = f"traces are not delivered to there: {problem}. The stream goes on without them."
    assert [record.getMessage() for record in caplog.records] == [
        down,
        "traces are delivered to there again; those of 7 batches were dropped",
        down,
    ]


def test_the_end_waits_only_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    let_on = threading.Event()

    def deliver(item: int) -> None:
        let_on.wait(30)

    deliveries: Deliveries[int] = Deliveries(deliver, "there", close_s=0.2)
    for number in range(3):
        deliveries.put(number)
    begun = time.monotonic()
    deliveries.close()
    assert 0.2 <= time.monotonic() - begun < 5
    assert deliveries.dropped == 3
    assert "traces of 3 batches were not delivered to there before the end" in caplog.text
    deliveries.put(4)
    assert deliveries.dropped == 4, "nobody delivers any more"
    let_on.set()


def test_what_the_log_says_is_wrong_has_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    def deliver(item: str) -> str:
        if item == "raises":
            raise ValueError("the header 'pass-word' is invalid")
        return "pass-word is invalid"

    for item in ("raises", "returns"):
        with caplog.at_level(logging.WARNING):
            deliveries: Deliveries[str] = Deliveries(
                deliver, "there", hide=lambda text: text.replace("pass-word", "***")
            )
            deliveries.put(item)
            deliveries.close()

    assert "pass-word" not in caplog.text and caplog.text.count("***") == 2
