"""Races follow from what a kernel guarantees, not from the schedule."""

import itertools
import random

import numpy as np
import pytest

from attention_lab.gpu import cuda, record

float32 = np.float32
PLACES = 3
NOTHING, LOAD, STORE, ATOMIC = range(4)
ACCESSES, BLOCK_BARRIER, WARP_BARRIER = range(3)


@cuda.jit
def scripted(out, steps, deeds, places, masks):
    """Each thread does what the tables say: a test writes any kernel."""
    s = cuda.shared.array(PLACES, np.int32)
    t = cuda.threadIdx.x
    if t < PLACES:
        s[t] = 0
    cuda.syncthreads()
    for k in range(steps.shape[0]):
        if steps[k] == BLOCK_BARRIER:
            cuda.syncthreads()
        elif steps[k] == WARP_BARRIER:
            cuda.syncwarp(masks[k, t])
        elif deeds[k, t] == LOAD:
            out[t, k] += s[places[k, t]]
        elif deeds[k, t] == STORE:
            s[places[k, t]] = 1
        elif deeds[k, t] == ATOMIC:
            cuda.atomic.add(s, places[k, t], 1)


def random_script(seed):
    """Return tables with few accesses, so that some scripts are clean."""
    rng = random.Random(seed)
    threads = rng.choice([4, 34])
    many = rng.randint(2, 6)
    shape = many, threads
    steps = np.array([rng.choice([0, 0, 1, 2]) for _ in range(many)])
    deeds = np.zeros(shape, np.int64)
    places = np.zeros(shape, np.int64)
    actors = rng.sample(range(threads), min(threads, 3))
    for k, t in itertools.product(range(many), actors):
        if rng.random() < 0.6:
            deeds[k, t] = rng.choice([LOAD, LOAD, STORE, ATOMIC])
            places[k, t] = rng.randrange(PLACES)
    masks = np.full(shape, 0xFFFFFFFF, np.int64)
    for k in range(many):
        if rng.random() < 0.5:  # even lanes and odd lanes wait apart
            masks[k] = np.where(np.arange(threads) % 2, 0xAAAAAAAA, 0x55555555)
    return steps, deeds, places, masks


def reaches(steps, masks, threads):
    """Return (first, t, u): the step of u from which it follows t's step k."""
    many = len(steps)
    after = {}
    for k, t in itertools.product(range(many), range(threads)):
        known = {t}
        for later in range(k + 1, many + 1):
            after[k, t, later] = frozenset(known)
            if later == many:
                break
            if steps[later] == BLOCK_BARRIER and known:
                known = set(range(threads))
            elif steps[later] == WARP_BARRIER:
                known |= {
                    v
                    for u in known
                    for v in range(u - u % 32, min(u - u % 32 + 32, threads))
                    if masks[later, u] == masks[later, v]
                    and masks[later, u] >> v % 32 & 1
                }
    return after


def racing_kinds(steps, deeds, places, masks):
    """Find the races of a script by following every chain of barriers."""
    many, threads = deeds.shape
    after = reaches(steps, masks, threads)
    acts = [
        (k, t)
        for k, t in itertools.product(range(many), range(threads))
        if deeds[k, t] and steps[k] == ACCESSES
    ]
    found = set()
    for (k, t), (m, u) in itertools.combinations(acts, 2):
        kinds = frozenset((int(deeds[k, t]), int(deeds[m, u])))
        harmless = kinds in ({LOAD}, {ATOMIC})
        if t == u or harmless or places[k, t] != places[m, u]:
            continue
        if m > k and u in after[k, t, m]:
            continue
        if k > m and t in after[m, u, k]:
            continue
        found.add(kinds)
    return found


def recorded_kinds(recording):
    words = {"reads": LOAD, "writes": STORE, "does atomic.add on": ATOMIC}
    found = set()
    for hazard in recording.hazards:
        assert hazard.kind == "race", str(hazard)
        found.add(
            frozenset(
                kind
                for word, kind in words.items()
                if f" {word} " in hazard.sentence
            )
        )
    return found


def record_script(script, order):
    out = np.zeros(script[1].shape[::-1], np.int64)
    return record(
        scripted, 1, script[1].shape[1], out, *script, order=order, seed=1
    )


@pytest.mark.parametrize("order", ["ascending", "shuffled"])
def test_races_are_those_of_a_search_over_all_chains(order):
    clean = racy = 0
    for seed in range(100):
        script = random_script(seed)
        expected = racing_kinds(*script)
        assert recorded_kinds(record_script(script, order)) == expected, seed
        clean += not expected
        racy += bool(expected)
    assert clean > 10  # the scripts are worth something only if both occur
    assert racy > 10


@cuda.jit
def halves(out, x):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    mask = 0x0000FFFF if t < 16 else 0xFFFF0000
    s[t] = x[t]
    cuda.syncwarp(mask)
    out[t] = s[t ^ 8]


@cuda.jit
def halves_crossed(out, x):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    mask = 0x0000FFFF if t < 16 else 0xFFFF0000
    s[t] = x[t]
    cuda.syncwarp(mask)
    out[t] = s[t ^ 16]


def test_half_a_warp_orders_its_own_lanes_only():
    x = np.arange(32, dtype=np.float32)
    assert record(halves, 1, 32, np.zeros_like(x), x).hazards == ()
    crossed = record(halves_crossed, 1, 32, np.zeros_like(x), x)
    assert crossed.kinds == ("race",)


@cuda.jit
def many_store_one(out, x):
    out[0] = x[cuda.grid(1)]


def test_a_large_race_is_found_in_reasonable_time():
    x = np.ones(8192, np.float32)
    recording = record(many_store_one, 16, 512, np.zeros(1, np.float32), x)
    assert recording.kinds == ("race",)
    assert len(recording.hazards) == 2  # within a block, and between blocks


@cuda.jit
def owns_its_element(out, x):
    i = cuda.grid(1)
    out[i] = x[i]
    out[i] += x[i]
    cuda.syncthreads()
    if i > 0 and cuda.threadIdx.x > 0:
        out[i] += out[i - 1] * float32(0.0)
    cuda.syncthreads()


def test_neighbour_read_and_written_in_one_stretch_is_a_race():
    x = np.ones(16, np.float32)
    recording = record(owns_its_element, 2, 8, np.zeros(16, np.float32), x)
    (hazard,) = recording.hazards
    assert hazard.kind == "race"
    assert hazard.threads[0] != hazard.threads[1]


@cuda.jit
def reverse(out, x):
    i = cuda.grid(1)
    out[i] = x[x.shape[0] - 1 - i]


def test_one_array_under_two_names_is_one_memory():
    x = np.arange(8, dtype=np.float32)
    assert record(reverse, 1, 8, np.zeros_like(x), x).hazards == ()
    (hazard,) = record(reverse, 1, 8, x, x).hazards
    assert hazard.kind == "race"
    overlapping = record(reverse, 1, 7, x[1:], x[:-1])
    assert [n.kind for n in overlapping.notes] == ["overlapping-arguments"]


@cuda.jit
def copy_in_part(out, x):
    i = cuda.grid(1)
    if i < 3:
        out[i] = x[i]


def test_array_read_under_another_name_is_no_unwritten_output():
    x = np.arange(8, dtype=np.float32)
    assert record(copy_in_part, 1, 8, x, x).hazards == ()
    partly = record(copy_in_part, 1, 8, np.zeros_like(x), x)
    assert partly.kinds == ("unwritten-output",)
