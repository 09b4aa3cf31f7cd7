"""How much memory the flash backward pass touches, by formula.

The same accesses as `traffic.measure` counts in a recording, counted on paper;
a kernel is right when the two agree exactly.
"""

from attention_lab.gpu.traffic import key_rows_loaded


def query_rows_loaded(L, S, TILE_L, TILE_S, causal=False):
    """Count the rows of Q that all blocks of one key head load, per query head.

    One block handles TILE_S keys and walks over the queries in tiles of
    TILE_L, cut at L. Without a mask each of the ⌈S/TILE_S⌉ blocks loads all L
    rows. With a causal mask no query before the block's first key s sees any
    of its keys, so the walk begins at the tile that holds query s:
    L − ⌊s/TILE_L⌋·TILE_L rows, or none.

    Examples
    --------
    >>> query_rows_loaded(L=8, S=8, TILE_L=4, TILE_S=4)
    16
    >>> query_rows_loaded(L=8, S=8, TILE_L=4, TILE_S=4, causal=True)
    12
    """
    rows = 0
    for s in range(0, S, TILE_S):
        start = s // TILE_L * TILE_L if causal else 0
        rows += max(0, L - start)
    return rows


def flash_backward_traffic(
    L,
    S,
    D,
    TILE_L,
    TILE_S,
    SPLIT=1,
    B=1,
    H=1,
    H_kv=None,
    D_v=None,
    causal=False,
):
    """Count the elements that the three backward kernels move.

    Row dots, SPLIT threads per query; per query head:

        output gradient, output  L·D_v reads each · row dot  L writes

    dQ, one block per TILE_L queries: the query and its output gradient are
    read once and kept, and each of the row's SPLIT threads reads its two
    numbers. A block brings its tiles of K and V into shared memory once,
    R = key_rows_loaded(…) rows; per query head:

        query  L·D reads · output gradient  L·D_v reads ·
        log-sum-exp, row dot  L·SPLIT reads each ·
        key  R·D reads · value  R·D_v reads · query gradient  L·D writes

    dK and dV, one block per TILE_S keys of a key head: the key and its value
    are read once and kept, and both gradients are written once, however many
    query heads read them; per key head:

        key  S·D reads · value  S·D_v reads ·
        key gradient  S·D writes · value gradient  S·D_v writes

    The block walks over the queries of each of those query heads,
    R' = query_rows_loaded(…) rows; per query head:

        query  R'·D reads · output gradient  R'·D_v reads ·
        log-sum-exp, row dot  R' reads each

    Returns
    -------
    For each kernel, {array: (reads, writes)}.

    Examples
    --------
    >>> sizes = dict(L=64, S=64, D=16, TILE_L=16, TILE_S=16)
    >>> flash_backward_traffic(**sizes)["dq"]["key"]
    (4096, 0)
    """
    D_v = D if D_v is None else D_v
    rows = B * H * L
    own_keys = B * (H if H_kv is None else H_kv) * S
    keys = B * H * key_rows_loaded(L, S, TILE_L, TILE_S, causal)
    queries = B * H * query_rows_loaded(L, S, TILE_L, TILE_S, causal)
    return {
        "row_dot": {
            "output_gradient": (rows * D_v, 0),
            "output": (rows * D_v, 0),
            "row_dot": (0, rows),
        },
        "dq": {
            "query": (rows * D, 0),
            "output_gradient": (rows * D_v, 0),
            "log_sum_exp": (rows * SPLIT, 0),
            "row_dot": (rows * SPLIT, 0),
            "key": (keys * D, 0),
            "value": (keys * D_v, 0),
            "query_gradient": (0, rows * D),
        },
        "dkv": {
            "key": (own_keys * D, 0),
            "value": (own_keys * D_v, 0),
            "key_gradient": (0, own_keys * D),
            "value_gradient": (0, own_keys * D_v),
            "query": (queries * D, 0),
            "output_gradient": (queries * D_v, 0),
            "log_sum_exp": (queries, 0),
            "row_dot": (queries, 0),
        },
    }


def plain_backward_traffic(L, S, D, B=1, H=1, D_v=None):
    """Count the elements that five plain backward kernels move.

    They need the L·S weights of the forward pass, and store two more arrays of
    that size. Each thread makes one number and reads all it needs from memory,
    as in `traffic.naive_forward_traffic`; per head:

    Gradient of the weights, one thread each:

        output gradient  L·S·D_v reads · value  L·S·D_v reads ·
        weight gradients  L·S writes

    Gradient of the scores, one thread per row, which goes over it twice (the
    row's dot, then the result):

        weights  2·L·S reads · weight gradients  2·L·S reads ·
        score gradients  L·S writes

    Three products, one thread per number of dQ, dK and dV:

        score gradients  L·S·D reads · key  L·S·D reads · dQ  L·D writes
        score gradients  L·S·D reads · query  L·S·D reads · dK  S·D writes
        weights  L·S·D_v reads · output gradient  L·S·D_v reads ·
        dV  S·D_v writes

    A causal mask saves nothing here: hidden weights are stored as zeros.

    Returns
    -------
    For each kernel, {array: (reads, writes)}.

    Examples
    --------
    >>> plain_backward_traffic(L=2, S=3, D=4)["query_gradient"]["key"]
    (24, 0)
    """
    D_v = D if D_v is None else D_v
    heads = B * H
    square = heads * L * S
    return {
        "weight_gradients": {
            "output_gradient": (square * D_v, 0),
            "value": (square * D_v, 0),
            "weight_gradients": (0, square),
        },
        "score_gradients": {
            "weights": (2 * square, 0),
            "weight_gradients": (2 * square, 0),
            "score_gradients": (0, square),
        },
        "query_gradient": {
            "score_gradients": (square * D, 0),
            "key": (square * D, 0),
            "query_gradient": (0, heads * L * D),
        },
        "key_gradient": {
            "score_gradients": (square * D, 0),
            "query": (square * D, 0),
            "key_gradient": (0, heads * S * D),
        },
        "value_gradient": {
            "weights": (square * D_v, 0),
            "output_gradient": (square * D_v, 0),
            "value_gradient": (0, heads * S * D_v),
        },
    }
