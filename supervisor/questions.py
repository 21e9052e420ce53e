"""What workers may ask of the router: journal rows and stored content of their own session.

A worker is not trusted: every question is answered as for the principal of the call it was asked
in, within the session it belongs to.

Failure: anything unknown or not allowed answers an error object; the worker turns it into a
language error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipc.jsonrpc import RpcError, internal
from ipc.messages import Answer, Ask, Content

if TYPE_CHECKING:
    from supervisor.kernel import Kernel
    from supervisor.sessions import Session
    from supervisor.worker_process import Worker


class Questions:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def answer(self, session: Session, worker: Worker, ask: Ask) -> None:
        """Answer one question, now or later."""
        self._refuse(worker, ask, internal("internal_error", f"unknown question {ask.op}"))

    @staticmethod
    def _refuse(worker: Worker, ask: Ask, error: RpcError) -> None:
        worker.send(Answer(ask.id, False, Content(error.encode())))
