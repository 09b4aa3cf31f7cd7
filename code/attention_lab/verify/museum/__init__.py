"""Exhibits: code with one known mistake each, as people wrote it.

Never import from here to compute attention. See
`attention_lab.verify.known_mistakes` for what each one is about.
"""
