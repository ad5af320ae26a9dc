"""``macaron prepare``: corpora in, a prepared folder out; `job` has the steps in their order."""

from macaron.data.prepare.job import Outcome, prepare

__all__ = ["Outcome", "prepare"]
