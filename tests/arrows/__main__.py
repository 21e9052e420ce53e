"""`python -m tests.arrows`: say which import arrows are broken; exit 1 if any is."""

import sys

from tests.arrows.rules import ROOT, violations


def main() -> int:
    found = violations(ROOT, sys.stdlib_module_names)
    sys.stderr.write("".join(f"{text}\n" for text in found))
    return 1 if found else 0


sys.exit(main())
