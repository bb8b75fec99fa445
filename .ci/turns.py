#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records which commit last passed each turn of .ci/run, and chooses the next turn.

    turns.py STATE choose COUNT TURN...     prints one of the turns; COUNT is the number of commits
    turns.py STATE passed TURN COMMIT       records that COMMIT passed TURN
    turns.py STATE report TURN...           prints when each turn last passed

STATE is a file that is kept from run to run. A turn that has not passed for a day goes first. Of several, the one that was tried
longest ago does, so that a failing turn does not block the others. Otherwise, or if STATE does not exist, COUNT decides.
"""

import json
import pathlib
import sys
import time

DAY = 24 * 3600


def load(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def save(path, state):
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
    new.replace(path)


def choose(state, count, turns, now):
    if state:
        late = [turn for turn in turns if now - state.get(turn, {}).get("passed", 0) > DAY]
        if late:
            return min(late, key=lambda turn: state.get(turn, {}).get("tried", 0))
    return turns[count % len(turns)]


def report(state, turns, now):
    for turn in turns:
        known = state.get(turn, {})
        if "passed" in known:
            yield f"{turn}: last passed by {known['commit']}, {(now - known['passed']) / 3600:.0f} hours ago"
        else:
            yield f"{turn}: not passed yet, as far as is known here"


def main(path, command, *arguments, now=None):
    path, now = pathlib.Path(path), time.time() if now is None else now
    state = load(path)
    if command == "choose":
        turn = choose(state, int(arguments[0]), arguments[1:], now)
        state.setdefault(turn, {})["tried"] = now
        print(turn)
    elif command == "passed":
        turn, commit = arguments
        state[turn] = {"tried": now, "passed": now, "commit": commit}
    elif command == "report":
        print("\n".join(report(state, arguments, now)))
        return
    else:
        sys.exit(__doc__)
    save(path, state)


if __name__ == "__main__":
    main(*sys.argv[1:])
