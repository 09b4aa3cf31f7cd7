"""The command ``attention-lab``.

`command` reads the arguments, `fresh_process` starts `worker`, which loads the
code (`load`) and verifies it; `failure_counts` remembers what failed before, so
that hints can grow.
"""
