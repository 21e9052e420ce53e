"""`shoal token`: create, list and revoke bearer secrets (chapter 81, section 7.10).

Works on the store itself; a running kernel notices the change.

Failure: exit 1 for an unknown id and a store that cannot be read or written.
"""

from __future__ import annotations

import time
from pathlib import Path

from supervisor.cli.call import Call
from supervisor.cli.failure import Exit, Failure
from supervisor.cli.policy_check import check_policy
from supervisor.paths import resolve
from supervisor.token_writer import UnknownToken, create_token, read_tokens, revoke_token
from supervisor.tokens import Token, TokenStoreBroken

DEFAULT_PROFILE = "default"


def _store(call: Call) -> Path:
    return resolve(
        call.environ, call.config, state=call.text("state_dir"), store=call.text("store")
    ).token_store


def create(call: Call) -> int:
    principal, *rest = call.operands
    profile = rest[0] if rest else DEFAULT_PROFILE
    _warn_without_policy(call, principal)
    try:
        bearer, token = create_token(
            _store(call),
            principal,
            profile,
            call.many("cap"),
            now_ns=time.time_ns(),
            ttl_s=call.number("ttl"),
        )
    except TokenStoreBroken as error:
        raise Failure(str(error)) from error
    if call.out.json:
        call.out.document(
            {
                "id": token.id,
                "secret": bearer,
                "principal": token.principal,
                "profile": token.profile,
                "caps": token.caps,
                "expires_ns": token.expires_ns,
            }
        )
    else:
        call.out.line(bearer)
    call.out.note(f"created {token.id} (secret shown once)")
    return Exit.SUCCESS


def _warn_without_policy(call: Call, principal: str) -> None:
    """Say so when the policy file in effect has nothing for the principal."""
    try:
        policy = check_policy(call.paths.policy, call.environ)
    except Failure:
        # Whatever is wrong with the policy, the kernel says it; a token can be made all the same.
        return
    if policy is not None and policy.of(principal) is None:
        call.out.note(f"warning: principal {principal} has no policy entry")


def list_tokens(call: Call) -> int:
    try:
        tokens = read_tokens(_store(call)).tokens
    except TokenStoreBroken as error:
        raise Failure(str(error)) from error
    now_ns = time.time_ns()
    tokens = sorted(tokens, key=lambda token: token.created_ns)
    if call.out.json:
        call.out.document([_document(token, now_ns) for token in tokens])
        return Exit.SUCCESS
    for token in tokens:
        call.out.line("\t".join((token.id, token.principal, token.profile, state(token, now_ns))))
    return Exit.SUCCESS


def state(token: Token, now_ns: int) -> str:
    if token.revoked_ns is not None:
        return "revoked"
    return "active" if token.valid_at(now_ns) else "expired"


def _document(token: Token, now_ns: int) -> dict[str, object]:
    return {
        "id": token.id,
        "principal": token.principal,
        "profile": token.profile,
        "caps": token.caps,
        "created_ns": token.created_ns,
        "expires_ns": token.expires_ns,
        "revoked_ns": token.revoked_ns,
        "state": state(token, now_ns),
    }


def revoke(call: Call) -> int:
    try:
        revoke_token(_store(call), call.operands[0], time.time_ns())
    except (UnknownToken, TokenStoreBroken) as error:
        raise Failure(str(error)) from error
    return Exit.SUCCESS
