"""What a scan decides."""

from __future__ import annotations

import pytest

from fibers.core.scan import backoff_ms, deadline_ms, is_dropped, is_out_of_time, wait_ms


@pytest.mark.parametrize(
    ("is_framework", "is_starting", "elapsed_ms", "expected"),
    [
        (False, False, 0, None),  # the user's hook is untimed
        (True, False, 0, 10_000),
        (False, True, 0, 20_000),  # but a start-up that takes 30 s is reset (runtime D11)
        (False, True, 9_000, 11_000),
        (True, True, 9_000, 10_000),
        (True, True, 15_000, 5_000),
        (False, True, 21_000, 0),
    ],
)
def test_the_framework_and_a_start_up_wait_for_a_handler_only_so_long(
    is_framework: bool, is_starting: bool, elapsed_ms: int, expected: int | None
) -> None:
    # recovery F15
    assert wait_ms(10_000, elapsed_ms, is_framework=is_framework, is_starting=is_starting) == expected


def test_a_timeout_of_zero_is_none() -> None:
    assert wait_ms(0, 0, is_framework=True, is_starting=False) is None


@pytest.mark.parametrize(
    ("limit_ms", "is_starting", "expected"),
    [(10_000, False, 10_000), (10_000, True, 10_000), (60_000, True, 20_000), (0, False, 0), (0, True, 20_000)],
)
def test_no_option_lets_a_scan_use_up_a_start_up(limit_ms: int, is_starting: bool, expected: int) -> None:
    assert deadline_ms(limit_ms, is_starting=is_starting) == expected


@pytest.mark.parametrize(
    ("now_ms", "limit_ms", "is_over"), [(10_000, 10_000, False), (10_001, 10_000, True), (10**9, 0, False)]
)
def test_a_scan_is_out_of_time_behind_its_deadline_and_never_without_one(
    now_ms: int, limit_ms: int, is_over: bool
) -> None:
    # recovery F19
    assert is_out_of_time(0, now_ms, limit_ms) is is_over


@pytest.mark.parametrize(("age_ms", "limit_ms", "is_over"), [(10, 10, False), (11, 10, True), (10**12, 0, False)])
def test_only_a_row_older_than_the_limit_is_dropped_and_none_without_a_limit(
    age_ms: int, limit_ms: int, is_over: bool
) -> None:
    # recovery F16
    assert is_dropped(1_000, 1_000 + age_ms, limit_ms) is is_over


@pytest.mark.parametrize(
    ("scans", "pause_ms"),
    [(0, 30_000), (1, 60_000), (2, 120_000), (3, 240_000), (4, 300_000), (5, 300_000), (99, 300_000)],
)
def test_the_pause_doubles_with_each_scan_that_got_nothing_done(scans: int, pause_ms: int) -> None:
    # recovery F20
    assert backoff_ms(30_000, scans) == pause_ms
