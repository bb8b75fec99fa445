#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""explain_test.py VERBENA SOURCES: `verbena explain` knows every enumerator of the headers, and finds the names that people
type."""

import errno
import json
import pathlib
import re
import subprocess
import sys
import unittest

VERBENA = SOURCES = None
VERBS = pathlib.Path("/usr/include/infiniband/verbs.h")
CMA = pathlib.Path("/usr/include/rdma/rdma_cma.h")


def explain(*words):
    return subprocess.run([VERBENA, "explain", *words], capture_output=True, text=True, timeout=30, check=False)


def known():
    return json.loads(explain("--json").stdout)


def names_of(kind):
    return {one["name"]: one["number"] for one in known() if one["kind"] == kind}


def enumerators(header, enum):
    """{name: value} of an enum whose values count up from zero."""
    body = re.search(r"enum " + enum + r" \{(.*?)\}", header.read_text(encoding="utf-8"), re.DOTALL).group(1)
    names = re.findall(r"^\s*(\w+),?", re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL), re.MULTILINE)
    return {name: number for number, name in enumerate(names)}


class Table(unittest.TestCase):
    def test_has_every_status_of_completions(self):
        self.assertEqual(names_of("wc"), enumerators(VERBS, "ibv_wc_status"))

    def test_has_every_asynchronous_event(self):
        self.assertEqual(names_of("event"), enumerators(VERBS, "ibv_event_type"))

    def test_has_every_event_of_librdmacm(self):
        self.assertEqual(names_of("cm"), enumerators(CMA, "rdma_cm_event_type"))

    def test_has_every_reason_of_the_connection_manager(self):
        text = (SOURCES / "src" / "management" / "cm" / "messages.h").read_text(encoding="utf-8")
        body = re.search(r"enum class RejReason[^{]*\{(.*?)\}", text, re.DOTALL).group(1)
        numbers = {int(number) for number in re.findall(r"= (\d+)", body)}
        self.assertGreater(len(numbers), 30)
        self.assertEqual(set(names_of("reject").values()), numbers)

    def test_has_every_errno_that_the_libraries_answer(self):
        answered = set()
        for folder in ("adapter/objects", "libraries/libibverbs", "libraries/librdmacm", "libraries/rsockets"):
            for file in (SOURCES / "src" / folder).glob("**/*.cc"):
                answered |= set(re.findall(r"(?:\bfail\(|errno = |return |\? |: )(E[A-Z0-9]{3,})\b", file.read_text(encoding="utf-8")))
        answered = {getattr(errno, name) for name in answered if hasattr(errno, name)}
        self.assertGreater(len(answered), 20)
        self.assertEqual(answered - set(names_of("errno").values()), set())

    def test_errnos_are_the_systems(self):
        for name, number in names_of("errno").items():
            self.assertEqual(getattr(errno, name), number)

    def test_lists_each_kind_by_its_numbers(self):
        for kind in ("wc", "event", "cm", "errno", "nak"):
            numbers = list(names_of(kind).values())
            self.assertEqual(numbers, sorted(numbers), kind)

    def test_blames_access_flags_where_they_matter(self):
        flags = {one["name"]: "qp_access_flags" in " ".join(one["causes"]) for one in known()}
        self.assertTrue(flags["IBV_WC_REM_INV_REQ_ERR"])
        self.assertFalse(flags["IBV_WC_REM_ACCESS_ERR"])

    def test_says_of_every_failure_why_and_where_to_look(self):
        for one in known():
            self.assertTrue(one["meaning"].endswith("."), one)
            # Successes and terms need no cause.
            if one["kind"] != "term" and not re.search(r"status 0|no error|is done", one["meaning"]):
                self.assertTrue(one["causes"], one)
                if one["kind"] in ("wc", "reject"):
                    self.assertTrue(one["look_at"], one)


class Search(unittest.TestCase):
    def assert_finds(self, words, *names):
        ran = explain("--json", *words)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertEqual([one["name"] for one in json.loads(ran.stdout)], list(names))

    def test_by_name_and_its_end_in_any_case(self):
        for name in ("IBV_WC_RETRY_EXC_ERR", "RETRY_EXC_ERR", "wc_retry_exc_err"):
            self.assert_finds([name], "IBV_WC_RETRY_EXC_ERR")
        self.assert_finds(["rejected"], "RDMA_CM_EVENT_REJECTED")

    def test_by_number_of_a_kind(self):
        self.assert_finds(["wc", "12"], "IBV_WC_RETRY_EXC_ERR")
        self.assert_finds(["reject", "28"], "CONSUMER_DEFINED")
        self.assert_finds(["cm", "8"], "RDMA_CM_EVENT_REJECTED")
        self.assert_finds(["errno", "12"], "ENOMEM")

    def test_a_bare_number_may_be_anything(self):
        self.assert_finds(["12"], "IBV_WC_RETRY_EXC_ERR", "IBV_EVENT_PKEY_CHANGE", "RDMA_CM_EVENT_MULTICAST_JOIN", "ENOMEM",
                          "INVALID_GID")

    def test_a_negative_number_is_an_errno(self):
        self.assert_finds(["--", "-110"], "ETIMEDOUT")
        self.assert_finds(["-110"], "ETIMEDOUT")

    def test_by_what_programs_print(self):
        self.assert_finds(["transport", "retry", "counter", "exceeded"], "IBV_WC_RETRY_EXC_ERR")
        self.assert_finds(["transport retry counter exceeded"], "IBV_WC_RETRY_EXC_ERR")
        self.assert_finds(["Cannot allocate memory"], "ENOMEM")

    def test_for_people(self):
        text = explain("RNR_RETRY_EXC_ERR").stdout
        self.assertIn("IBV_WC_RNR_RETRY_EXC_ERR (completion status 13)", text)
        self.assertIn("Likeliest causes:\n  - the peer posts receives too late", text)

    def test_terms_in_any_case(self):
        for word in ("CNP", "cnp", "syndrome", "Rnr", "rts"):
            self.assertEqual(explain(word).returncode, 0, word)
        self.assertIn("IBV_WC_REM_ACCESS_ERR", explain("NAK").stdout)
        self.assertIn("Negative acknowledgement", explain("nak").stdout)
        self.assert_finds(["rem_access_err"], "IBV_WC_REM_ACCESS_ERR")
        self.assert_finds(["enetdown"], "ENETDOWN")
        self.assertIn("UDP port 4791 is not available to the agent", explain("ENETDOWN").stdout)

    def test_suggests_the_name_that_was_meant(self):
        self.assertIn("did you mean 'RETRY_EXC_ERR'?", explain("RETRY_EXXC_ERR").stderr)
        self.assertIn("did you mean 'ENOMEM'?", explain("enomen").stderr)

    def test_lists_everything(self):
        text = explain().stdout
        for heading in ("completion status", "asynchronous event", "event of librdmacm", "errno", "reject reason", "AETH syndrome", "term"):
            self.assertIn(heading, text)

    def test_what_nobody_knows(self):
        ran = explain("IBV_WC_NONSENSE")
        self.assertEqual(ran.returncode, 1)
        self.assertIn("'verbena explain' lists", ran.stderr)


if __name__ == "__main__":
    VERBENA, SOURCES = sys.argv.pop(1), pathlib.Path(sys.argv.pop(1))
    unittest.main()
