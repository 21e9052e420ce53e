"""Commands that run source and look after what runs.

Failure: none.
"""

from __future__ import annotations

from typing import Final

from supervisor.cli.call import COLOR_OPTION, JSON_OPTION, LISTING_OPTIONS, TARGET_OPTIONS
from supervisor.cli.options import Command, Operand, Option
from supervisor.cli.readers import one_of, unsigned

_BUDGETS: Final = (
    Option("--max-bytes", "encoded bytes before a value is elided", value="N", read=unsigned),
    Option("--max-rows", "table rows before a value is elided", value="N", read=unsigned),
    Option("--max-items", "list elements before a value is elided", value="N", read=unsigned),
)

EXEC: Final = Command(
    "exec",
    "run source in a session of the kernel",
    run="supervisor.cli.execute:run",
    about="""\
  shoal exec 'let n = 6; n * 7'            bindings stay in the session for the next call
  shoal exec --session build 'make all'    another session
  shoal exec --json --position value 'ls'  the value, structured
  shoal exec --background 'sleep 60'       prints the task; see `shoal task`

Starts a kernel when none listens. Ctrl-C cancels the work. A command that fails ends with its own
status; 2 means that the source does not parse, 75 that the program needs approval, 77 that it is
denied, 69 that no kernel was reached.""",
    options=(
        *TARGET_OPTIONS,
        Option(
            "--position",
            "`stmt` (a failed command raises) or `value` (it is a value)",
            value="stmt|value",
            read=one_of("stmt", "value"),
        ),
        Option("--plan", "show the effects the source would have, run nothing"),
        Option("--background", "run as a task and print its name at once"),
        Option(
            "--timeout-ms",
            "wait that long, then leave the work as a task",
            value="N",
            read=unsigned,
        ),
        *_BUDGETS,
        JSON_OPTION,
        Option("--raw", "print the exact text or bytes of the value"),
        Option("--quiet", "print no result"),
        COLOR_OPTION,
        Option("--file", "read the source from a file", value="FILE", aliases=("-f",)),
    ),
    operands=(Operand("SOURCE", "source text; `-` reads it from stdin", required=False),),
)

_PLAN_REF: Final = Operand("REF", "`plan:` and 32 hex digits, or the first eight or more of them")

PLAN: Final = Command(
    "plan",
    "see what a program would do, approve it, apply it",
    about="""\
  shoal plan make 'rm old.log'              the effects and the plan's name; nothing runs
  shoal plan list --pending                 your plans, and those waiting for your approval
  shoal plan approve plan:4f0c9a17          look at it, then say yes
  shoal plan apply plan:4f0c9a17            runs exactly the source that was planned, once

An approval admits one run and expires. Exit 75 means that approval is missing, 77 that it is
denied.""",
    options=(*TARGET_OPTIONS, *LISTING_OPTIONS),
    commands=(
        Command(
            "make",
            "plan source and print its effects",
            run="supervisor.cli.plan:make",
            operands=(Operand("SOURCE", "source text"),),
        ),
        Command(
            "list",
            "plans of the session",
            run="supervisor.cli.plan:list_plans",
            options=(Option("--pending", "also the plans of others that you may approve"),),
        ),
        Command("show", "one plan", run="supervisor.cli.plan:show", operands=(_PLAN_REF,)),
        Command(
            "approve",
            "approve a plan, or ask for its approval",
            run="supervisor.cli.plan:approve",
            options=(
                Option("--effects", "effect kinds to grant, with commas", value="KIND,..."),
                Option("--yes", "do not ask; needed without a terminal"),
            ),
            operands=(_PLAN_REF,),
        ),
        Command(
            "apply",
            "run a plan's source",
            run="supervisor.cli.plan:apply",
            operands=(_PLAN_REF,),
        ),
    ),
)

RUN: Final = Command(
    "run",
    "run a script file without a kernel",
    run="supervisor.cli.local_run:run_file",
    about="The same as `shoal FILE`, also for a file named like a command.",
    operands=(
        Operand("FILE", "the script", rest=True),
        Operand("ARG", "its arguments", required=False, many=True, rest=True),
    ),
)

EVENTS: Final = Command(
    "events",
    "follow or publish events",
    about="""\
  shoal events tail journal                   every submission, as it ends (`tail` may be left out)
  shoal events tail user.build --limit 20     the newest twenty of your own channel, and on
  shoal events publish user.build '{"ok":true}'""",
    options=(*TARGET_OPTIONS, JSON_OPTION, COLOR_OPTION),
    implied="tail",
    commands=(
        Command(
            "tail",
            "print a channel's events as they come",
            run="supervisor.cli.events:tail",
            options=(
                Option(
                    "--since", "first print what came after this number", value="N", read=unsigned
                ),
                Option(
                    "--limit", "at most that many of the backlog, newest", value="N", read=unsigned
                ),
                Option("--no-follow", "end after the backlog"),
            ),
            operands=(
                Operand("CHANNEL", "journal, session.transcript, render, task.N, user.*, ..."),
            ),
        ),
        Command(
            "publish",
            "publish on a channel that begins with `user.`",
            run="supervisor.cli.events:publish",
            options=(Option("--string", "send text that is no JSON as a string"),),
            operands=(Operand("CHANNEL", "a `user.*` channel"), Operand("JSON", "the payload")),
        ),
        Command(
            "channels", "list the channels of the session", run="supervisor.cli.events:channels"
        ),
    ),
)

TASK: Final = Command(
    "task",
    "see and control background work",
    options=(*TARGET_OPTIONS, *LISTING_OPTIONS),
    commands=(
        Command("list", "tasks of the session", run="supervisor.cli.task:list_tasks"),
        Command(
            "show",
            "one task's record",
            run="supervisor.cli.task:show",
            operands=(Operand("TASK", "`task:N` or `N`"),),
        ),
        Command(
            "wait",
            "wait for a task's end; exit 0 completed, 1 failed, 130 cancelled, 75 timeout",
            run="supervisor.cli.task:wait",
            options=(Option("--timeout", "give up after that long", value="S", read=unsigned),),
            operands=(Operand("TASK", "`task:N` or `N`"),),
        ),
        Command(
            "cancel",
            "cancel a task",
            run="supervisor.cli.task:cancel",
            options=(Option("--wait", "wait for its end"),),
            operands=(Operand("TASK", "`task:N` or `N`"),),
        ),
        Command(
            "suspend",
            "hold a running task",
            run="supervisor.cli.task:suspend",
            operands=(Operand("TASK", "`task:N` or `N`"),),
        ),
        Command(
            "resume",
            "let a held task go on",
            run="supervisor.cli.task:resume",
            operands=(Operand("TASK", "`task:N` or `N`"),),
        ),
        Command(
            "output",
            "print a finished task's value",
            run="supervisor.cli.task:output",
            options=(Option("--raw", "the exact text or bytes"),),
            operands=(Operand("TASK", "`task:N` or `N`"),),
        ),
    ),
)

SESSION: Final = Command(
    "session",
    "list, share and close sessions",
    options=(*TARGET_OPTIONS, *LISTING_OPTIONS),
    commands=(
        Command(
            "list",
            "your sessions and those shared with you",
            run="supervisor.cli.session:list_sessions",
            options=(Option("--all", "every session; needs operator authority"),),
        ),
        Command(
            "share",
            "let other principals attach to a session",
            run="supervisor.cli.session:share",
            options=(
                Option(
                    "--mode",
                    "what guests may do: `full` or `read`",
                    value="full|read",
                    read=one_of("full", "read"),
                ),
            ),
            operands=(
                Operand("NAME", "session"),
                Operand("PRINCIPAL", "who may attach", many=True),
            ),
        ),
        Command(
            "unshare",
            "withdraw that",
            run="supervisor.cli.session:unshare",
            operands=(
                Operand("NAME", "session"),
                Operand("PRINCIPAL", "who may not attach any more", many=True),
            ),
        ),
        Command(
            "close",
            "end a session for good; its journal stays",
            run="supervisor.cli.session:close",
            options=(Option("--force", "also with running work or other attachments"),),
            operands=(Operand("NAME", "session"),),
        ),
    ),
)

_PTY_ID: Final = Operand("PTY", "`pty:N` or `N`")

PTY: Final = Command(
    "pty",
    "open and use terminals of a session",
    about="""\
  shoal pty open --cols 100 top       prints the terminal's name
  shoal pty send 1 'q' key:enter
  shoal pty read 1""",
    options=(*TARGET_OPTIONS, *LISTING_OPTIONS),
    commands=(
        Command("list", "terminals of the session", run="supervisor.cli.pty:list_ptys"),
        Command(
            "open",
            "start a program on a new terminal",
            run="supervisor.cli.pty:open_pty",
            options=(
                Option("--cols", "columns (default: yours)", value="N", read=unsigned),
                Option("--rows", "rows (default: yours)", value="N", read=unsigned),
                Option("--env", "a variable for the program", value="K=V", repeat=True),
                Option("--attach", "show it at once, as `attach` does"),
            ),
            operands=(
                Operand("CMD", "the program", rest=True),
                Operand("ARG", "its arguments", required=False, many=True, rest=True),
            ),
        ),
        Command(
            "attach",
            "show a terminal in yours; Ctrl-] d detaches, q closes, r redraws",
            run="supervisor.cli.pty:attach",
            operands=(_PTY_ID,),
        ),
        Command(
            "send",
            "type into a terminal",
            run="supervisor.cli.pty:send",
            operands=(_PTY_ID, Operand("ITEM", "text, key:NAME or b64:BASE64", many=True)),
        ),
        Command(
            "read",
            "print a terminal's screen",
            run="supervisor.cli.pty:read",
            operands=(_PTY_ID,),
        ),
        Command(
            "resize",
            "change a terminal's size",
            run="supervisor.cli.pty:resize",
            operands=(_PTY_ID, Operand("SIZE", "COLSxROWS")),
        ),
        Command(
            "close",
            "end a terminal and its program",
            run="supervisor.cli.pty:close",
            operands=(_PTY_ID,),
        ),
    ),
)
