"""Run foreign code so that it can neither hang nor crash its caller.

`isolated` is the entry; `forked` runs a copy of the process, `processes` deals
with what that starts and `notebook` with what it displays; `watchdog` stops
code inside this one, `progress` is what a verification tells meanwhile, and
`words` says what went wrong.
"""
