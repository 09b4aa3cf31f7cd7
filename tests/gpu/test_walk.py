"""A recording in the order of the program: nothing lost, nothing moved."""

from collections import Counter

import numpy as np
import pytest

from attention_lab.gpu.walk import (
    LINE_COLUMNS,
    REQUEST_COLUMNS,
    by_line,
    by_request,
    merged,
    runs,
)
from figures.lens_kernels import record_lens_kernels, record_triangle


@pytest.fixture(scope="module")
def recordings():
    return [*record_lens_kernels().values(), record_triangle()]


def unrolled(listed):
    """Read runs back, with NumPy's own counting."""
    threes = np.array(listed).reshape(-1, 3)
    return [int(a + b * k) for a, b, n in threes for k in range(n)]


def rows_of(columns, names):
    return [
        dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)
    ]


def accesses(events):
    """Every access as recorded, thread by thread, in order."""
    return [
        (int(b), int(t), int(e), int(s), int(n))
        for b, t, e, s, n in zip(
            events.block, events.thread, events.epoch, events.site,
            events.element, strict=True,
        )
    ]  # fmt: skip


def walked(columns):
    """Every access of a walk, in its order."""
    return [
        (row["block"], thread, row["epoch"], row["site"], element)
        for row in rows_of(columns, REQUEST_COLUMNS)
        for thread, element in zip(
            unrolled(row["threads"]), unrolled(row["elements"]), strict=True
        )
    ]


def ways(listed):
    """The accesses of each thread, in order."""
    found = {}
    for block, thread, *what in listed:
        found.setdefault((block, thread), []).append(tuple(what))
    return found


def test_each_thread_keeps_its_accesses_in_their_order(recordings):
    for recording in recordings:
        walk = by_request(recording.events)
        assert ways(walked(walk)) == ways(accesses(recording.events))


def test_requests_in_another_order_are_noticed(recordings):
    walk = [column[::-1] for column in by_request(recordings[0].events)]
    assert ways(walked(walk)) != ways(accesses(recordings[0].events))


def test_requests_cost_what_the_recorder_counts(recordings):
    """32-byte sectors and 4-byte banks, counted again from the addresses."""
    for recording in recordings:
        events = recording.events
        sectors, passes, requests = Counter(), Counter(), Counter()
        for row in rows_of(by_request(events), REQUEST_COLUMNS):
            label = events.sites[row["site"]].label
            addresses = np.array(unrolled(row["addresses"]))
            requests[label] += 1
            sectors[label] += len(set(addresses // 32))
            banks = Counter(word % 32 for word in set(addresses // 4))
            passes[label] += max(banks.values())
        for row in recording.traffic:
            assert requests[row.array] == row.requests
            if row.space == "global":
                assert sectors[row.array] == row.sectors
            else:
                conflicts = passes[row.array] - row.requests
                assert conflicts == row.bank_conflicts


def test_lanes_that_part_are_in_fewer_requests():
    """Row r reads r + 1 numbers: 3 rows of a block are 3 + 2 + 1 trips."""
    recording = record_triangle()
    rows = rows_of(by_request(recording.events), REQUEST_COLUMNS)
    reads = [r for r in rows if r["block"] == 0 and r["site"] == 0]
    assert [len(unrolled(row["threads"])) for row in reads] == [12, 8, 4]


def test_a_loop_in_one_line_is_one_visit(recordings):
    rows = rows_of(by_line(recordings[3].events), LINE_COLUMNS)
    assert [(row["epoch"], len(row["sites"])) for row in rows] == [
        (0, 2),
        (1, 2),
    ]
    for row in rows:
        assert unrolled(row["threads"]) == list(range(32))
        for elements in row["elements"]:
            assert unrolled(elements) == list(range(32 * 32))


def test_lines_touch_what_was_recorded(recordings):
    for recording in recordings:
        rows = rows_of(by_line(recording.events), LINE_COLUMNS)
        touched = {
            (row["block"], row["epoch"], site, element)
            for row in rows
            for site, elements in zip(
                row["sites"], row["elements"], strict=True
            )
            for element in unrolled(elements)
        }
        assert touched == {
            (b, e, s, n) for b, _, e, s, n in accesses(recording.events)
        }


def test_runs_read_back():
    rng = np.random.default_rng(0)
    for size in (1, 2, 3, 17):
        numbers = rng.integers(0, 5, size).tolist()
        assert unrolled(runs(numbers)) == numbers


def test_ways_that_disagree_still_give_one_order():
    order = merged([(1, 2, 3), (2, 1), (4,)])
    assert sorted(order) == [1, 2, 3, 4]
    assert order.index(1) < order.index(2) < order.index(3)


def test_a_recording_writes_both(recordings):
    for granularity, names in (
        ("request", REQUEST_COLUMNS),
        ("line", LINE_COLUMNS),
    ):
        events = recordings[0].to_data(granularity)["events"]
        assert events["granularity"] == granularity
        assert events["columns"] == list(names)
    with pytest.raises(ValueError, match="'request' or 'line'"):
        recordings[0].to_data("warp")
