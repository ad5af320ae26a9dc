"""Damaged and hostile files for every reader of Macaron, and commands that are killed: does anything go unnoticed?

``python benchmarks/faults.py --cases 20000 --seed 1 --out faults.json``
``python benchmarks/faults.py --kills 100 --seed 1``
"""

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from faults.campaign import CLASSES, Campaign, plan, table
from faults.kills import NEEDS, kill
from faults.readers import READERS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=0, help="number of damaged files")
    parser.add_argument("--kills", type=int, default=0, help="number of commands that are killed at random moments")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--readers", default="", help="only those whose names contain one of these, separated by ;")
    parser.add_argument("--case", type=int, help="one case of one reader again: its index")
    parser.add_argument("--out", type=Path, help="JSON file for all numbers")
    arguments = parser.parse_args()
    out = arguments.out and arguments.out.resolve()  # commands are called in other folders
    wanted = [part.strip() for part in arguments.readers.split(";")]
    readers = [reader for reader in READERS.values() if any(part in reader.name for part in wanted)]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="macaron-faults-") as folder:
        campaign = Campaign(
            arguments.seed, Path(folder), [] if arguments.kills else readers, NEEDS if arguments.kills else set()
        )
        if arguments.kills:
            sys.exit(_kills(campaign, arguments.kills, out))
        built = time.monotonic()
        cases = plan(campaign.readers, arguments.cases)
        if arguments.case is not None:
            cases = [(campaign.readers[0], arguments.case)]
        outcomes = []
        for outcome in campaign.run(cases):
            outcomes.append(outcome)
            if outcome.kind not in CLASSES[:2]:
                print(
                    f"{outcome.kind}: --seed {arguments.seed} --readers '{outcome.reader}' --case {outcome.index}\n    "
                    + outcome.detail.strip().replace("\n", "\n    "),
                    flush=True,
                )
            elif arguments.case is not None:
                print(outcome)
    rows = table(outcomes)
    names = ("reader", "cases", *CLASSES)
    total = {name: sum(row[name] for row in rows) for name in names[1:]}
    print(" | ".join(names))
    for row in [*rows, {"reader": "all", **total}]:
        print(f"{row['reader']:34}" + "".join(f"{row[name]:>8}" for name in names[1:]))
    free = sum(not outcome.protected for outcome in outcomes)
    print(f"{free / max(1, len(outcomes)):.0%} of the cases without digests, or sealed again")
    took = time.monotonic() - built
    each = 1000 * took / max(1, len(outcomes))
    print(f"{len(readers)} readers; ready after {built - begun:.1f} s; {each:.0f} ms a case")
    if out:
        faults = [asdict(outcome) for outcome in outcomes if outcome.kind not in CLASSES[:2]]
        out.write_text(
            json.dumps(
                {"seed": arguments.seed, "seconds": took, "table": rows, "total": total, "faults": faults}, indent=1
            )
            + "\n"
        )
    sys.exit(any(total[name] for name in CLASSES[2:]))


def _kills(campaign: Campaign, kills: int, out: Path | None) -> bool:
    """Kill commands and print how they ended; whether something was lost."""
    counts: dict[str, list[int]] = {}
    begun = time.monotonic()
    for name, often, wrong in kill(campaign.world, campaign.folder, kills, campaign.seed):
        count = counts.setdefault(name, [0, 0, 0])
        count[0], count[1], count[2] = count[0] + often, count[1] + 1, count[2] + (wrong is not None)
        if wrong is not None:
            print(f"{name}, killed {often} time(s): {wrong}", flush=True)
    rows = [{"command": name, "kills": a, "ends": b, "other ends": c} for name, (a, b, c) in counts.items()]
    for row in rows:
        print(
            f"{row['command']:24} kills {row['kills']:3}, ends {row['ends']:4}, other than unkilled {row['other ends']}"
        )
    print(f"{sum(a for a, _, _ in counts.values())} kills in {time.monotonic() - begun:.0f} s")
    if out:
        out.write_text(json.dumps({"seed": campaign.seed, "kills": rows}, indent=1) + "\n")
    return any(c for _, _, c in counts.values())


if __name__ == "__main__":
    main()
