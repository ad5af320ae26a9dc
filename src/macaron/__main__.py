"""``python -m macaron``, also ``torchrun -m macaron``."""

from macaron.cli import main

if __name__ == "__main__":
    main()
