"""Streams: lazy, pull-driven, single-consumer sequences (chapter 30 §14).

`core` has the value and the pulling rules, `sources`, `watch` and `tail` make streams,
`combinators`, `timed` and `tee` are what lies between, `sinks` drive them. Methods of the language
are declared in worker.values.methods.streams.

Failure: see the modules.
"""

from worker.evaluate.streams.core import Stream

__all__ = ["Stream"]
