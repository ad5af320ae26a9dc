"""``python -m macaron``, also ``torchrun -m macaron``: the command in a process of its own."""

import os
import sys

from macaron.cli import main


def run() -> None:
    """Run the command; verbs that answer lines end without taking thousands of modules and a GPU's state apart."""
    try:
        main()
    except SystemExit as end:
        if end.code or not {"translate", "generate", "predict", "embed", "score"}.intersection(sys.argv[1:2]):
            raise
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    run()
