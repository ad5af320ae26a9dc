"""``macaron prepare``: corpora in, a prepared folder out (see `macaron.data.prepared`).

fetch           the files of a recipe: found or fetched (download, archive, wikipedia)
inputs          aligned files, read in chunks of lines
cleaning        chunks of lines into cleaned pairs or sentences
roles           which of them are trained on: duplicates, overlap, those held out to validate on
encoding        cleaned text into subwords and ids
job             one run over all steps
command         whether a folder is up to date, and the run that writes it
"""

from macaron.data.prepare.command import Outcome, prepare

__all__ = ["Outcome", "prepare"]
