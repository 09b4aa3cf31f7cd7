"""Record a launch: run it here, keep every access, and judge them."""

from attention_lab.gpu.arguments import host_views
from attention_lab.gpu.engine import shared_lengths
from attention_lab.gpu.engines import check_turns, run
from attention_lab.gpu.errors import LaunchRefused
from attention_lab.gpu.events import decode, memory_of
from attention_lab.gpu.explain import Hazard
from attention_lab.gpu.hazards import find_hazards
from attention_lab.gpu.kernel_source import KernelSource, kernel_function
from attention_lab.gpu.limits import check_launch, dynamic_bytes, three_sizes
from attention_lab.gpu.notes import access_notes, overlap_notes, source_notes
from attention_lab.gpu.overlap import shared_regions
from attention_lab.gpu.recording import Recording
from attention_lab.gpu.traffic import Traffic, measure


def record(
    kernel,
    grid,
    block,
    *args,
    shared_bytes=0,
    order="ascending",
    seed=0,
    engine="auto",
):
    """Run a kernel on the CPU with every memory access kept.

    The arrays hold the kernel's results afterwards, as after a launch.

    Parameters
    ----------
    kernel : a kernel of this package or of Numba, or a plain function
    grid, block : the launch, as in ``kernel[grid, block]``
    *args : the kernel's arguments
    shared_bytes : dynamic shared memory of each block
    order : "ascending", "descending" or "shuffled": the order in which
        threads and blocks take their turns. The hazards found do not
        depend on it, as long as it does not change what is accessed.
    seed : of the shuffled order
    engine : "python", "compiled" (machine code; needs Numba), or "auto" to
        choose by size. Both give the same recording.

    Returns
    -------
    A `Recording`. A launch that no GPU would accept is not run: the
    recording then holds no events, and the refusal as its only hazard.
    """
    function = kernel_function(kernel)
    grid, block = three_sizes(grid, "grid"), three_sizes(block, "block")
    shared_bytes = dynamic_bytes(shared_bytes)
    check_turns(order, seed, engine)
    facts = {
        "kernel": function.__name__,
        "grid": grid,
        "block": block,
        "shared_bytes": shared_bytes,
        "order": order,
        "seed": seed,
    }
    try:
        check_launch(grid, block)
        pairs = host_views(function, args)
        views = [view for view, _ in pairs]
        lowered, done, used = run(
            kernel, views, grid, block, shared_bytes, order, seed, True, engine
        )
    except LaunchRefused as refusal:
        hazard = Hazard(refusal.kind, str(refusal))
        return Recording(
            **facts,
            source_sha256=KernelSource(function).sha256,
            engine="none",
            events=None,
            traffic=Traffic((), {}),
            hazards=(hazard,),
        )
    for _, copy_back in pairs:
        if copy_back is not None:
            copy_back()
    lengths = shared_lengths(lowered, shared_bytes)
    given = dict(zip(lowered.parameters, views, strict=True))
    same, overlaps, regions = shared_regions(
        lowered.arrays, [given[name] for name in lowered.arrays]
    )
    events = decode(
        lowered, done, memory_of(lowered, views, lengths, regions), same
    )
    traffic, requests = measure(events)
    return Recording(
        **facts,
        source_sha256=lowered.sha256,
        engine=used,
        events=events,
        traffic=traffic,
        hazards=tuple(
            find_hazards(events, done, lowered.stops, lowered.arrays)
        ),
        notes=tuple(
            source_notes(lowered)
            + access_notes(events, requests)
            + overlap_notes(overlaps)
        ),
    )
