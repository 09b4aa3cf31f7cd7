"""Verify kernels: values, memory accesses, traffic, compiled code.

`battery` is the entry; `case` says what a launch is, `sizes` and `bounds` give
the defaults, `bench` holds one verification's state, the checks are in `checks`
and `cost_checks` with `compare`; `hazard_names` and `value_names`, with
`wrong_answers`, name the mistake.
"""
