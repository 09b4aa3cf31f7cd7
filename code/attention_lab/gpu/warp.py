"""What the lanes of a warp hand each other."""

from attention_lab.gpu.limits import WARP_SIZE

FULL_MASK = 0xFFFFFFFF
VOTES = ("ballot_sync", "all_sync", "any_sync")


def lanes_of(mask):
    """Return the lanes that a mask names."""
    return [lane for lane in range(WARP_SIZE) if mask >> lane & 1]


def source_lane(op, lane, operand):
    """Return the lane that a shuffle reads from.

    A shuffle up or down past the edge of the warp keeps its own value.
    """
    if op == "shfl_xor_sync":
        return lane ^ operand
    if op == "shfl_sync":
        return operand % WARP_SIZE
    step = operand if op == "shfl_down_sync" else -operand
    source = lane + step
    return source if 0 <= source < WARP_SIZE else lane


def exchange(op, first, lanes, boxes, unwritten, strays):
    """Carry out one warp operation for the lanes that take part.

    Parameters
    ----------
    op : name of the operation
    first : thread number of the warp's lane 0
    lanes : the lanes that take part
    boxes : the exchange lists of the block, see `schedule.Boxes`
    unwritten : what a lane gets from one that does not take part
    strays : receives (lane, source) of such lanes
    """
    if op == "syncwarp":
        return
    value, result = boxes.value, boxes.result
    if op in VOTES:
        agree = [lane for lane in lanes if value[first + lane]]
        answer = {
            "ballot_sync": sum(1 << lane for lane in agree),
            "all_sync": len(agree) == len(lanes),
            "any_sync": bool(agree),
        }[op]
        for lane in lanes:
            result[first + lane] = answer
        return
    taking_part = set(lanes)
    for lane in lanes:
        source = source_lane(op, lane, int(boxes.operand[first + lane]))
        if source in taking_part:
            result[first + lane] = value[first + source]
        else:
            strays.append((lane, source))
            result[first + lane] = unwritten
