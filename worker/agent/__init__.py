"""Agent turns inside a session worker: the turn loop, provider kinds, tools, stored files.

A turn runs on a thread of its own, beside the evaluator, and asks the router for everything that
needs authority: evaluation, approvals, answers of people, model calls. `worker.agent.desk` is what
the session knows of it.

Failure: none of its own.
"""
