"""Verify kernels: values, memory accesses, traffic, compiled code.

`battery` is the entry; `case` says what a launch is, `sizes`, `bounds` and
`strong_inputs` what is tried, `bench` holds one verification's state. The
checks are in `checks`, `large_check` and `cost_checks`, with `compare`;
`hazard_names` with `divergence`, and `value_names` with `wrong_answers`, name
the mistake.
"""
