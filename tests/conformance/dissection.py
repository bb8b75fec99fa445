# SPDX-License-Identifier: Apache-2.0
"""Dissects captures with tshark."""

import subprocess

SEND_ONLY = {"4", "5", "36", "37", "100", "101"}
# For a SEND, tshark 4.0 looks for another protocol's type field without checking the payload's length. It calls packets with a
# payload of up to four bytes malformed, even the kernel's.
PAYLOAD_TOO_SHORT_FOR_TSHARK = 4

FIELDS = ("frame.number", "frame.protocols", "infiniband.bth.opcode", "udp.length", "infiniband.bth.padcnt",
          "_ws.malformed")


def rows(path):
    """One dictionary per frame."""
    command = ["tshark", "-n", "-r", str(path), "-T", "fields", "-E", "occurrence=f", "-E", "separator=/t"]
    for field in FIELDS:
        command += ["-e", field]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"tshark: {ran.stderr}")
    return [dict(zip(FIELDS, line.split("\t"))) for line in ran.stdout.splitlines()]


def payload_bytes(row):
    """The payload length of a SEND ONLY: the UDP payload without BTH, DETH, immediate data, padding and ICRC."""
    headers = 12 + (8 if row["infiniband.bth.opcode"] in ("100", "101") else 0)
    headers += 4 if row["infiniband.bth.opcode"] in ("5", "37", "101") else 0
    return int(row["udp.length"]) - 8 - headers - 4 - int(row["infiniband.bth.padcnt"] or 0)


def check(path):
    """(number of frames, complaints): every frame must be RoCEv2, and none malformed."""
    wrong = []
    table = rows(path)
    for row in table:
        name = f"{path} frame {row['frame.number']}"
        if not row["infiniband.bth.opcode"]:
            wrong.append(f"{name}: not dissected as RoCEv2 but as {row['frame.protocols']}")
        elif row["_ws.malformed"] and not (row["infiniband.bth.opcode"] in SEND_ONLY
                                           and payload_bytes(row) <= PAYLOAD_TOO_SHORT_FOR_TSHARK):
            wrong.append(f"{name}: opcode {row['infiniband.bth.opcode']} malformed")
    return len(table), wrong
