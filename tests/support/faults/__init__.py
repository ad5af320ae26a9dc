"""Faults: damaged and hostile inputs for every reader of Macaron, and processes that are killed.

`world` writes what is read, `mutations` damages it, `readers` lists the commands and what is right for each,
`campaign` runs cases under a watchdog, `kills` kills commands. tests/faults and benchmarks/faults.py use them.
"""
