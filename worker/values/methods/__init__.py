"""The methods of the language (chapter 21).

`call_method` runs one, `field_method` the field form without arguments; `METHODS` and `BY_TYPE` are
the declarations, `VOCABULARY` the names completion and hints know. Each family of receivers has a
module; loading this package loads them all.

Failure: see `dispatch` and the families.
"""

# Families in the order that decides whose argument rules hold for a receiver of the wrong type:
# collections come before the other receivers of the same names.
from worker.values.methods import collections as _collections  # isort: skip
from worker.values.methods import grouping as _grouping  # isort: skip
from worker.values.methods import ordering as _ordering  # isort: skip
from worker.values.methods import strings as _strings  # isort: skip
from worker.values.methods import records as _records  # isort: skip
from worker.values.methods import scalars as _scalars  # isort: skip
from worker.values.methods import blobs as _blobs  # isort: skip
from worker.values.methods import names as _names  # isort: skip
from worker.values.methods import files as _files  # isort: skip
from worker.values.methods import globs as _globs  # isort: skip
from worker.values.methods import outcomes as _outcomes  # isort: skip
from worker.values.methods import tasks as _tasks  # isort: skip
from worker.values.methods import streams as _streams  # isort: skip
from worker.values.methods import channels as _channels  # isort: skip
from worker.values.methods import universal as _universal  # isort: skip
from worker.values.methods.dispatch import call_method, field_method
from worker.values.methods.hints import VOCABULARY
from worker.values.methods.registry import BY_TYPE, METHODS, Method, seal, walk

seal()

FAMILIES = (
    _collections,
    _grouping,
    _ordering,
    _strings,
    _records,
    _scalars,
    _blobs,
    _names,
    _files,
    _globs,
    _outcomes,
    _tasks,
    _streams,
    _channels,
    _universal,
)

__all__ = [
    "BY_TYPE",
    "FAMILIES",
    "METHODS",
    "VOCABULARY",
    "Method",
    "call_method",
    "field_method",
    "walk",
]
