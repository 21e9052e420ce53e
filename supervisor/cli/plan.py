"""`shoal plan`: what a program would do, its approval, and its run (chapter 81, section 7.5).

Failure: exit 75 while approval is missing, 77 where it is refused, 1 for an unknown plan.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, Final

from ipc.client import Client, RpcError
from supervisor.cli.call import Call
from supervisor.cli.failure import Exit, Failure
from supervisor.cli.options import UsageError
from supervisor.cli.plans import print_plan
from supervisor.cli.results import print_failure, print_result

_PREFIX: Final = "plan:"
_DIGITS: Final = 32
_SHORTEST: Final = 8
_HEX: Final = frozenset("0123456789abcdef")


def make(call: Call) -> int:
    source = call.operands[0]
    with call.connect() as client:
        call.attached(client)
        try:
            planned = client.call("exec", {"src": source, "mode": "plan"})
        except RpcError as error:
            return print_failure(call.out, error, source, command="plan")
        print_plan(call.out, client.call("plan.get", {"plan_ref": planned["plan_ref"]}))
    return Exit.SUCCESS


def list_plans(call: Call) -> int:
    with call.connect() as client:
        call.attached(client)
        plans = client.call("plan.list")
        if call.flag("pending"):
            plans += client.call("plan.list", {"approvable": True})
    if call.out.json:
        call.out.document(plans)
    else:
        columns = ("REF", "VERDICT", "STATE", "REVERSIBILITY", "OWNER", "SESSION", "EFFECTS")
        call.out.table(columns, map(_row, plans))
    return Exit.SUCCESS


def _row(plan: Mapping[str, Any]) -> tuple[str, ...]:
    kinds = dict.fromkeys(effect["kind"] for effect in plan["effects"])
    return (
        plan["plan_ref"],
        plan["verdict"],
        plan_state(plan),
        plan["reversibility"],
        plan["principal"],
        plan["session"],
        ",".join(kinds),
    )


def plan_state(plan: Mapping[str, Any]) -> str:
    """`ready`, `pending`, `requested`, `approved` or `denied`."""
    if plan["verdict"] == "deny":
        return "denied"
    if plan["verdict"] == "allow":
        return "ready"
    if plan["approved"]:
        return "approved"
    return "requested" if plan["requested_ns"] is not None else "pending"


def show(call: Call) -> int:
    with call.connect() as client:
        ref = _attach_and_find(call, client)
        print_plan(call.out, client.call("plan.get", {"plan_ref": ref}))
    return Exit.SUCCESS


def approve(call: Call) -> int:
    kinds = [kind.strip() for kind in (call.text("effects") or "").split(",") if kind.strip()]
    asking = not call.flag("yes")
    if asking and not os.isatty(0):
        raise UsageError("approve needs --yes when stdin is not a terminal")
    with call.connect() as client:
        ref = _attach_and_find(call, client)
        # With JSON the answer is the one document; the plan is only shown to be judged.
        if not call.out.json:
            print_plan(call.out, client.call("plan.get", {"plan_ref": ref}))
        if asking and not _said_yes(call):
            raise Failure("not approved")
        answer = client.call("cap.request", {"plan_ref": ref, "effects": kinds})
    return _report(call, answer)


def _said_yes(call: Call) -> bool:
    call.out.flush()
    sys.stderr.write("approve? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _report(call: Call, answer: Mapping[str, Any]) -> int:
    granted = answer["grant"] == "approved"
    if call.out.json:
        call.out.document(answer)
    elif granted:
        held = "enforced" if answer["enforced"] else "not enforced"
        call.out.line(f"approved {answer['plan_ref']} (sandbox {held})")
    elif answer["grant"] == "approval_pending":
        call.out.note(f"shoal plan: {answer['why']}: {', '.join(answer['uncovered_effects'])}")
    else:
        call.out.note("shoal plan: approval requested, an approver is needed")
    return Exit.SUCCESS if granted else Exit.APPROVAL


def apply(call: Call) -> int:
    with call.connect() as client:
        ref = _attach_and_find(call, client, tty=call.out.color and not call.out.json)
        source = ""
        try:
            source = client.call("plan.get", {"plan_ref": ref})["src"]
            result = client.call("plan.apply", {"plan_ref": ref})
        except RpcError as error:
            return print_failure(call.out, error, source, command="plan")
    print_result(call.out, result)
    return Exit.SUCCESS


def _attach_and_find(call: Call, client: Client, *, tty: bool = False) -> str:
    digits = plan_digits(call.operands[0])
    call.attached(client, tty=tty)
    if len(digits) == _DIGITS:
        return _PREFIX + digits
    known = client.call("plan.list") + client.call("plan.list", {"approvable": True})
    found = sorted(
        {plan["plan_ref"] for plan in known if plan["plan_ref"].startswith(_PREFIX + digits)}
    )
    if not found:
        raise Failure(f"unknown plan `{digits}`")
    if len(found) > 1:
        raise Failure(f"`{digits}` begins several plans: {', '.join(found)}")
    return str(found[0])


def plan_digits(text: str) -> str:
    """The hex digits of a reference or of the beginning of one. Raises UsageError."""
    digits = text.removeprefix(_PREFIX)
    if not (_SHORTEST <= len(digits) <= _DIGITS and _HEX.issuperset(digits)):
        raise UsageError(f"not a plan: `{text}` (at least {_SHORTEST} hex digits)")
    return digits
