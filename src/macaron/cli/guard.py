"""How a verb ends when a person or a pipe stops it."""

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from macaron.errors import Interrupted

P = ParamSpec("P")


def guarded(verb: Callable[P, None]) -> Callable[P, None]:
    """A verb that ends Ctrl-C and a closed pipe our way; further out, typer would have swallowed them."""

    @wraps(verb)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            verb(*args, **kwargs)
            sys.stdout.flush()
        except KeyboardInterrupt:
            raise Interrupted("stopped by Ctrl-C") from None
        except BrokenPipeError:
            # The reader of our output went away (`macaron ... | head`): not an error of ours, and nothing to say.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    return run
