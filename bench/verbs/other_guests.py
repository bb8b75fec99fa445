# SPDX-License-Identifier: Apache-2.0
"""Detects disturbance of a virtual machine by other guests of its host, and repeats measurements that were disturbed.

Two things change within seconds, invisibly to the kernel, and change latencies by half or more:
- Another guest uses the second hardware thread of a core: our thread then executes two thirds of its instructions per second.
- The host moves our processors: nearer to each other, onto one core, or farther apart.
Both are checked before and after each measurement. A disturbed measurement is repeated for a limited time.
"""

import dataclasses
import statistics
import time

import harness

WHOLE = 0.9  # minimum additions per cycle, relative to the maximum seen: no other guest uses the core
SAME = 0.3  # maximum relative difference of the flag from its median
LOOKS = 15  # checks at the beginning, which determine the median


@dataclasses.dataclass(frozen=True)
class Look:
    flag: float  # half round trip of a cache line between the two processors, in ns
    additions: float  # per cycle; the lower value of the two processors


class OtherGuests:
    # patience: maximum seconds for repeating a measurement; 0: never check, never repeat.
    def __init__(self, limits_program, patience):
        self._limits_program = limits_program
        self._patience = patience if limits_program.exists() else 0
        self.taken = self.again = self.disturbed = 0
        looks = [self._look() for _ in range(LOOKS)] if self._patience else []
        self.flag = statistics.median(look.flag for look in looks) if looks else None
        self.max_additions = max((look.additions for look in looks), default=0)

    def _look(self):
        lines = harness.sh(self._limits_program, "--rounds", 3, "--only", "flag", "additions_at_once").splitlines()
        values = {name: float(value) for name, value, _ in (line.split() for line in lines)}
        return Look(values["flag"], values["additions_at_once"])

    def _are_away(self):
        look = self._look()
        self.max_additions = max(self.max_additions, look.additions)
        return look.additions >= WHOLE * self.max_additions and abs(look.flag - self.flag) <= SAME * self.flag

    def without(self, measure):
        """Calls measure() until no other guest disturbed it, or until the patience ends; returns its last result."""
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
            return "other guests of the host: not checked"
        return (f"other guests of the host: {self.taken} measurements, {self.again} repetitions because of disturbance, "
                f"{self.disturbed} results still disturbed (undisturbed: flag {self.flag:.0f} ns, {self.max_additions:.1f} additions "
                "per cycle)")
