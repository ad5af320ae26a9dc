"""``python -m macaron``, also ``torchrun -m macaron``: the command in a process of its own."""

import os
import sys

from macaron.cli import main

#: Verbs that answer lines, start nothing that outlives them, and are often waited for.
_BRIEF = ("translate", "predict", "embed", "score")


def run() -> None:
    """Run the command; a brief one ends without taking thousands of modules apart, and a GPU's state with them."""
    try:
        main()
    except SystemExit as end:
        if end.code in (None, 0) and sys.argv[1:2] and sys.argv[1] in _BRIEF:
            sys.stdout.flush()
            os._exit(0)
        raise


if __name__ == "__main__":
    run()
