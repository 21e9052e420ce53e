"""Reef: which file a tool name means in a project (chapter 41, part B).

`constraints` and `manifests` say what is asked for, `providers` and `probe` what there is, `lock`
and `hashes` what was decided, `views` what a child sees, `resolver` brings them together as the
`Reef` a host gives its evaluators.

Failure: see the modules.
"""

from worker.commands.reef.manifests import user_file
from worker.commands.reef.resolver import Reef, ResolvedTool

__all__ = ["Reef", "ResolvedTool", "user_file"]
