"""One request of an initialized connection, with who asks and what that identity may do.

Failure: the checks raise RpcError; for scoped callers an unknown session, another's and one without
owner look the same (chapter 70 §7.4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from supervisor.agent.identity import Access, Binding, not_owned, session_not_found

if TYPE_CHECKING:
    from supervisor.agent.connection import AgentConnection
    from supervisor.agent_endpoint import AgentEndpoint


@dataclass(slots=True)
class AgentCall:
    endpoint: AgentEndpoint
    connection: AgentConnection
    binding: Binding
    access: Access
    method: str

    def owns(self, owner: str | None) -> bool:
        """Whether a session with this recorded owner may be touched."""
        if self.access.admin:
            return True
        return owner is not None and owner == self.binding.identity.owner

    def check_owner(self, session_id: str, owner: str | None) -> None:
        if not self.owns(owner):
            raise not_owned(session_id)

    async def check_session(self, session_id: str) -> None:
        """The session exists, live or durable, and is the caller's to touch."""
        live = self.endpoint.sessions.live.get(session_id)
        if live is not None:
            self.check_owner(session_id, live.owner)
            return
        rows = await self.endpoint.sessions.rows(session_id)
        if not any(self.owns(row.principal_id) for row in rows):
            if not self.access.admin:
                raise not_owned(session_id)
            raise session_not_found(session_id)

    def audit_foreign(self, session_id: str, owner: str | None) -> None:
        """An operator acts on another principal's session."""
        if self.access.admin and owner != self.binding.identity.owner:
            self.endpoint.audit(
                "agent_foreign_session",
                self.binding,
                self.connection,
                {"method": self.method, "session_id": session_id, "owner": owner},
            )
