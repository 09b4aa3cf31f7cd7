"""Which accesses make up a warp request, counted by hand.

One warp of 32 lanes reads float32, so eight neighbours share a sector of 32
bytes and a warp's 32 neighbours take 4, or 5 when they begin in the middle.
"""

import numpy as np
import pytest

from attention_lab.gpu import cuda, record

float32 = np.float32
WARP = 32


@cuda.jit
def neighbours(out, a):
    t = cuda.threadIdx.x
    # a[0..31] is 4 sectors, a[1..32] is 5.
    out[t] = a[t] + a[t + 1]


@cuda.jit
def two_sides(out, a):
    t = cuda.threadIdx.x
    # Odd lanes touch all of a[1..31], 4 sectors; even lanes a[64..94], 4.
    out[t] = a[t] if t % 2 else a[t + 64]


@cuda.jit
def in_place(out, a):
    t = cuda.threadIdx.x
    a[t] += float32(1.0)  # 4 sectors to read, 4 to write
    out[t] = float32(0.0)


@cuda.jit
def choice_in_a_loop(out, a):
    t = cuda.threadIdx.x
    acc = float32(0.0)
    for k in range(2):
        # Odd lanes a[1..31] on trip 0, even lanes a[32..62] on trip 1.
        acc += a[32 * k + t] if (t + k) % 2 else float32(0.0)
    out[t] = acc


@cuda.jit
def shortcut_in_a_loop(out, a):
    t = cuda.threadIdx.x
    acc = float32(0.0)
    for k in range(2):
        # As above: `and` does not look at a[...] in the other lanes.
        acc += (t + k) % 2 == 1 and a[32 * k + t] > 0
    out[t] = acc


@cuda.jit
def unequal_inner_loops(out, a):
    t = cuda.threadIdx.x
    acc = float32(0.0)
    for k in range(2):
        # All lanes on the first inner trip, the odd ones on a second:
        # a[64k..64k+31] and a[64k+33..64k+63], 4 sectors each.
        for j in range(t % 2 + 1):
            acc += a[64 * k + 32 * j + t]
    out[t] = acc


@cuda.jit
def some_lanes_loop(out, a):
    t = cuda.threadIdx.x
    acc = float32(0.0)
    if t % 2 == 1:
        for k in range(3):
            if k != t:
                acc += a[k]  # one element: 1 sector on each of 3 trips
    acc += a[t]  # together again: 4 sectors
    out[t] = acc


@cuda.jit
def leaving_early(out, a):
    t = cuda.threadIdx.x
    acc = float32(0.0)
    for k in range(4):
        if k > t:
            break
        acc += a[32 * k + t]  # lanes k..31: 4 sectors on each of 4 trips
    out[t] = acc


@cuda.jit
def different_counters(out, a):
    t = cuda.threadIdx.x
    k = t % 2
    acc = float32(0.0)
    while k < 4:
        # Trip 0: even lanes at k = 0. Trip 1: odd lanes at k = 2.
        # Trip 2: even lanes at k = 2. Each time one element, 1 sector.
        if k % 2 == 0:
            acc += a[8 * k]
        k += 1
    out[t] = acc


@cuda.jit
def different_starts(out, a):
    t = cuda.threadIdx.x
    acc = float32(0.0)
    # Lane t starts at t: its n-th trip is at k = t + n. Trip n has the
    # lanes with t + n < 34, so 32, 32, 32, 31, ..., 1 of them, on
    # a[n..min(n + 31, 33)]: 34 trips in all.
    for k in range(t, 34):
        acc += a[k]
    out[t] = acc


@cuda.jit(device=True)
def load(a, i):
    return a[i]


@cuda.jit
def called_twice(out, a):
    t = cuda.threadIdx.x
    out[t] = load(a, t) + load(a, t + 1)  # 4 sectors and 5


@cuda.jit
def with_shuffles(out, a):
    t = cuda.threadIdx.x
    acc = float32(0.0)
    for k in range(2):
        if (t + k) % 2 == 1:
            acc += a[32 * k + t]  # 4 sectors each time
        acc += cuda.shfl_xor_sync(0xFFFFFFFF, acc, 1)
    out[t] = acc


def sectors_of_starts():
    """Return the sectors of `different_starts`: a[n..last] on trip n."""
    return sum(min(n + 31, 33) // 8 - n // 8 + 1 for n in range(34))


# kernel, requests on `a`, sectors of `a`
CASES = [
    (neighbours, 2, 4 + 5),
    (two_sides, 2, 4 + 4),
    (in_place, 2, 4 + 4),
    (choice_in_a_loop, 2, 4 + 4),
    (shortcut_in_a_loop, 2, 4 + 4),
    (unequal_inner_loops, 4, 4 + 4 + 4 + 4),
    (some_lanes_loop, 4, 1 + 1 + 1 + 4),
    (leaving_early, 4, 4 + 4 + 4 + 4),
    (different_counters, 3, 1 + 1 + 1),
    (different_starts, 34, sectors_of_starts()),
    (called_twice, 2, 4 + 5),
    (with_shuffles, 2, 4 + 4),
]


@pytest.mark.parametrize("order", ["ascending", "descending", "shuffled"])
@pytest.mark.parametrize(
    ("kernel", "requests", "sectors"), CASES, ids=lambda v: str(v)
)
def test_requests_are_those_counted_by_hand(kernel, requests, sectors, order):
    out, a = np.zeros(WARP, float32), np.ones(128, float32)
    recording = record(kernel, 1, WARP, out, a, order=order)
    assert recording.hazards == ()
    row = recording.traffic["a"]
    assert (row.requests, row.sectors) == (requests, sectors)
    assert recording.traffic["out"].sectors == 4


@pytest.mark.parametrize("kernel", [two_sides, unequal_inner_loops])
def test_both_engines_count_the_same_requests(kernel):
    pytest.importorskip("numba", reason="the compiled engine is Numba's")
    made = []
    for engine in ("python", "compiled"):
        out, a = np.zeros(WARP, float32), np.ones(128, float32)
        made.append(record(kernel, 1, WARP, out, a, engine=engine))
    assert made[0].traffic.as_data() == made[1].traffic.as_data()
    assert made[0].events.sites == made[1].events.sites
    np.testing.assert_array_equal(made[0].events.trip, made[1].events.trip)


@cuda.jit
def banks(out):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = float32(1.0)  # 1 pass
    s[t + 32] = float32(1.0)  # 1 pass
    cuda.syncthreads()
    # s[t] takes 1 pass. s[2t] has the banks 2t mod 32: two lanes, 16 apart,
    # on each even bank, so 2 passes. s[63 - t] takes 1.
    out[t] = s[t] + s[2 * t] + s[63 - t]


@cuda.jit
def banks_apart(out):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = float32(1.0)
    s[t + 32] = float32(1.0)
    cuda.syncthreads()
    # Bank 0 holds s[0] and s[32], but in two requests: no conflict.
    out[t] = s[0] if t % 2 else s[32]


def test_bank_conflicts_are_those_of_one_access():
    row = record(banks, 1, WARP, np.zeros(WARP, float32)).traffic["s"]
    assert (row.requests, row.bank_conflicts) == (5, 1)
    assert row.worst_bank_conflict == 2
    row = record(banks_apart, 1, WARP, np.zeros(WARP, float32)).traffic["s"]
    assert (row.requests, row.bank_conflicts) == (4, 0)


@cuda.jit
def cut_by_an_array(out, a, starts):
    t = cuda.threadIdx.x
    out[t] = a[starts[t] : starts[t] + 2][1]


def test_the_edge_of_a_slice_is_read_once():
    out, a = np.zeros(WARP, float32), np.arange(64, dtype=float32)
    recording = record(cut_by_an_array, 1, WARP, out, a, np.arange(WARP))
    assert recording.traffic["starts"].reads == 2 * WARP
    np.testing.assert_array_equal(out, np.arange(1, 33))


@cuda.jit
def race_on_one_line(out, a):
    t = cuda.threadIdx.x
    a[t] = a[(t + 1) % 32] + a[(t + 2) % 32]
    out[t] = a[40 + t] + a[41 + t]


@cuda.jit
def strides_on_one_line(out, a):
    t = cuda.threadIdx.x
    out[t] = a[2 * t] + a[2 * t + 1]


def test_what_is_wrong_with_a_line_is_said_once():
    out, a = np.zeros(WARP, float32), np.ones(80, float32)
    recording = record(race_on_one_line, 1, WARP, out, a)
    assert [h.kind for h in recording.hazards] == ["race"]
    assert recording.hazards[0].lines[0] == recording.hazards[0].lines[1]
    recording = record(strides_on_one_line, 1, WARP, out, a)
    assert [n.kind for n in recording.notes] == ["strided-access"]


def test_sites_say_where_in_the_line_they_are():
    out, a = np.zeros(WARP, float32), np.ones(128, float32)
    recording = record(neighbours, 1, WARP, out, a)
    text = "out[t] = a[t] + a[t + 1]"
    columns = [site.column for site in recording.events.sites]
    assert columns == [
        text.index("a[t]") + 1,
        text.index("a[t + 1]") + 1,
        text.index("out") + 1,
    ]
    assert [s["column"] for s in recording.to_data()["sites"]] == columns
