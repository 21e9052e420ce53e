#!/bin/sh
# Make the virtual environment that the Makefile's other targets use. Safe to repeat.
#
# usage: setup.sh VENV PYTHON...
#
# On Linux one dependency (python-prctl) is compiled, so a C compiler and libcap's headers are
# needed. They are installed when this may be done without asking; else the exact command is
# printed and nothing is changed.
#
# Failure: exit 1 with what to run on stderr.
set -eu

venv=$1
shift

say() { printf '%s\n' "setup: $*" >&2; }

find_python() {
    for name in ${PYTHON:+"$PYTHON"} "$@"; do
        command -v "$name" >/dev/null 2>&1 || continue
        if "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s\n' "$name"
            return
        fi
    done
    say "no Python 3.11 or newer with venv and pip was found (set PYTHON=/path/to/python to name one)"
    exit 1
}

# One small program against libcap and Python.h tells more than any list of packages.
can_compile() {
    command -v "${CC:-cc}" >/dev/null 2>&1 || return 1
    include=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
    printf '#include <Python.h>\n#include <sys/capability.h>\nint main(void) { return cap_get_proc() == 0; }\n' |
        "${CC:-cc}" -x c -I"$include" -o /dev/null - -lcap >/dev/null 2>&1
}

system_packages() {
    [ "$(uname -s)" = Linux ] || return 0
    "$venv/bin/python" -c 'import prctl' 2>/dev/null && return 0
    can_compile && return 0

    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    packages="gcc libc6-dev libcap-dev"
    # A Python of the distribution has its headers in a package of their own.
    include=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
    [ -f "$include/Python.h" ] || packages="$packages python$version-dev"

    if ! command -v apt-get >/dev/null 2>&1; then
        say "a C compiler, Python.h and libcap's headers are missing; install them, for example with"
        say "    dnf install gcc libcap-devel python3-devel"
        say "    apk add gcc musl-dev libcap-dev linux-headers python3-dev"
        exit 1
    fi
    as_root=
    if [ "$(id -u)" != 0 ]; then
        if command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
            as_root="sudo -n"
        else
            say "system packages are missing; run this, then make setup again:"
            say "    sudo apt-get install -y $packages"
            exit 1
        fi
    fi
    say "installing $packages"
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086
    if ! { $as_root apt-get install -y -q $packages ||
        { $as_root apt-get update -q && $as_root apt-get install -y -q $packages; }; } >/dev/null; then
        say "apt-get failed; run this by hand, then make setup again:"
        say "    apt-get update && apt-get install -y $packages"
        exit 1
    fi
}

if [ -x "$venv/bin/python" ] && "$venv/bin/python" -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    python="$venv/bin/python"
else
    python=$(find_python "$@")
    say "creating $venv with $("$python" --version)"
    "$python" -m venv --clear "$venv"
fi

system_packages

pip="$venv/bin/python -m pip --disable-pip-version-check --no-input"
say "installing the pinned dependencies"
$pip install --quiet --require-hashes -r requirements/dev.lock
# The project itself: in place, so that the tree is what runs.
$pip install --quiet --no-deps --no-build-isolation -e .
say "done: $venv/bin/shoal"
