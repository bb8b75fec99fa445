# SPDX-License-Identifier: Apache-2.0
"""What a virtual machine feels of its host's other guests, and how to measure when it feels nothing.

Two things change within seconds, without a word from the kernel, and change latencies by half and more:
- The other half of a core works for another guest: ours has two thirds of its instructions in the same time.
- The host moves our processors: nearer to each other, on one core, or farther apart.
Both are looked at before and after each measurement. One that was disturbed is taken again, as long as there is patience for.
"""

import dataclasses
import statistics
import time

import harness

WHOLE = 0.9  # of the most additions at once that have been seen: nobody else is on the core
SAME = 0.3  # the flag may differ so much
LOOKS = 15  # at the beginning


@dataclasses.dataclass(frozen=True)
class Look:
    flag: float  # ns
    additions: float  # at once, by the processor that has fewer


class OtherGuests:
    # patience: seconds for each measurement; 0: whatever comes is taken.
    def __init__(self, limits_program, patience):
        self._limits_program = limits_program
        self._patience = patience if limits_program.exists() else 0
        self.taken = self.again = self.disturbed = 0
        looks = [self._look() for _ in range(LOOKS)] if self._patience else []
        self.flag = statistics.median(look.flag for look in looks) if looks else None
        self.most_additions = max((look.additions for look in looks), default=0)

    def _look(self):
        lines = harness.sh(self._limits_program, "--rounds", 3, "--only", "flag", "additions_at_once").splitlines()
        values = {name: float(value) for name, value, _ in (line.split() for line in lines)}
        return Look(values["flag"], values["additions_at_once"])

    def _are_away(self):
        look = self._look()
        self.most_additions = max(self.most_additions, look.additions)
        return look.additions >= WHOLE * self.most_additions and abs(look.flag - self.flag) <= SAME * self.flag

    def without(self, measure):
        """What measure() answers, from a time in which the others were not felt, if there is such a time."""
        if not self._patience:
            return measure()
        self.taken += 1
        end = time.monotonic() + self._patience
        while True:
            away = self._are_away()
            while not away and time.monotonic() < end:
                away = self._are_away()
            value = measure()
            if away and self._are_away():
                return value
            if time.monotonic() >= end:
                self.disturbed += 1
                return value
            self.again += 1

    def report(self):
        if not self._patience:
            return "other guests of the host were not looked for"
        return (f"other guests of the host: {self.taken} measurements, {self.again} times one was taken again as they were felt, "
                f"{self.disturbed} are disturbed nevertheless (flag {self.flag:.0f} ns and {self.most_additions:.1f} additions a "
                "cycle when they are not)")
