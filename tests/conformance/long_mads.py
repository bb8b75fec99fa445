#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exchanges management messages of several datagrams (RMPP) through libibumad. Run it under `verbena run`.

    long_mads.py serve                  answers each request with its own data
    long_mads.py ask LID BYTES...       sends a request of each length and compares the reply
    long_mads.py ask-nobody LID BYTES   prints the result of a request that nobody answers
    long_mads.py faults                 prints how umad_send() refuses wrong requests
    long_mads.py raw                    reads a table of subnet administration in segments, which the program acknowledges itself
    long_mads.py wait LID               sends a request that is never answered, prints "sent", then prints the result
    long_mads.py ask-on LID             sends requests repeatedly and prints the results
"""

import ctypes
import errno
import hashlib
import os
import struct
import sys
import time

CLASS = 0x32
OUI = b"\x00\x42\x56"
GET, GET_TABLE, RESPONSE = 0x01, 0x12, 0x80
HEADER = 64  # struct ib_user_mad
DATA_AT = 40
MAD = 256
ACTIVE = 1
DATA, ACK = 1, 2
MAX_BYTES = 4 << 20

umad = ctypes.CDLL("libibumad.so.3", use_errno=True)
umad.umad_send.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int]
umad.umad_recv.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int), ctypes.c_int]
umad.umad_set_addr.argtypes = [ctypes.c_void_p] + [ctypes.c_int] * 4


class Port:
    """A umad port with a registered agent."""

    def __init__(self, methods=(), rmpp=1, management_class=CLASS):
        self.fd = umad.umad_open_port(None, 0)
        if self.fd < 0:
            sys.exit(f"umad_open_port: {self.fd}")
        mask = (ctypes.c_long * 2)(sum(1 << method for method in methods), 0)
        if management_class == CLASS:
            self.agent = umad.umad_register_oui(self.fd, CLASS, rmpp, OUI, mask)
        else:
            self.agent = umad.umad_register(self.fd, management_class, 2, rmpp, mask)
        if self.agent < 0:
            sys.exit(f"umad_register: {self.agent}, errno {ctypes.get_errno()}")

    def send(self, mad, lid=0, answers=None, timeout=0, retries=0):
        """Sends a MAD. Returns 0 or the errno value. `answers`: the header of the request that this answers."""
        buffer = ctypes.create_string_buffer(HEADER + len(mad))
        if answers:
            buffer.raw = answers + mad
        else:
            buffer.raw = bytes(HEADER) + mad
            umad.umad_set_addr(buffer, lid, 1, 0, -0x7fff0000)
        return ctypes.get_errno() if umad.umad_send(self.fd, self.agent, buffer, len(mad), timeout, retries) else 0

    def receive(self, timeout=20000, room=MAX_BYTES):
        """Receives a MAD: (header, message), or (None, (result of umad_recv(), length))."""
        buffer = ctypes.create_string_buffer(HEADER + room)
        length = ctypes.c_int(room)
        got = umad.umad_recv(self.fd, buffer, ctypes.byref(length), timeout)
        if got < 0:
            return None, (got, length.value)
        whole = ctypes.string_at(buffer, HEADER + length.value)
        return whole[:HEADER], whole[HEADER:]


def status_of(header):
    return struct.unpack_from("=I", header, 4)[0]


def message(method, transaction, data, management_class=CLASS, active=ACTIVE):
    mad = struct.pack(">BBBBHHQHHI", 1, management_class, 1, method, 0, 0, transaction, 0x10, 0, 0)
    return mad + struct.pack(">BBBBII", 1, DATA, active, 0, 0, 0) + b"\0" + OUI + data


def data_of(size, seed=7):
    block = b"".join(hashlib.sha256(bytes([seed]) + number.to_bytes(4, "big")).digest() for number in range(size // 32 + 1))
    return block[:size]


def serve():
    port = Port([GET])
    print("serving", flush=True)
    while True:
        header, mad = port.receive(-1)
        if header is None:
            sys.exit(f"umad_recv: {mad}")
        if status_of(header):
            print(f"an answer of {len(mad)} bytes: status {status_of(header)}", flush=True)
            continue
        failed = port.send(mad[:3] + bytes([mad[3] | RESPONSE]) + mad[4:], answers=header, retries=3)
        print(f"answered {len(mad)} {failed}", flush=True)


def ask_once(port, lid, size, transaction):
    data = data_of(size - DATA_AT, transaction & 0xff)
    failed = port.send(message(GET, transaction, data), lid, timeout=10000, retries=3)
    if failed:
        return f"umad_send: errno {failed}"
    if size > MAD:  # with too small a buffer, umad_recv() gives the length and keeps the message
        header, said = port.receive(room=MAD)
        if header is not None:
            return f"status {status_of(header)}"
        if said != (-errno.ENOSPC, size):
            return f"in {MAD} bytes: {said}"
    header, mad = port.receive()
    if header is None:
        return f"umad_recv: {mad}"
    if status_of(header):
        return f"status {status_of(header)}"
    if mad[3] != GET | RESPONSE or mad[DATA_AT:] != data:
        return f"another answer: {len(mad)} bytes, method {mad[3]:#x}"
    return None


def ask(lid, *sizes):
    port = Port()
    for number, size in enumerate(sizes):
        begun = time.monotonic()
        wrong = ask_once(port, int(lid), int(size), int(time.time() * 1000) * 16 % 2**31 + number)
        print(f"{size}: {wrong or 'good'} ({time.monotonic() - begun:.2f} s)", flush=True)
        if wrong:
            sys.exit(1)


def ask_nobody(lid, size):
    port = Port()
    for timeout, retries in ((100, 2), (0, 0)):  # even without a timeout, the send waits for an acknowledgement
        begun = time.monotonic()
        failed = port.send(message(GET, 77 + timeout, data_of(int(size) - DATA_AT)), int(lid), timeout=timeout, retries=retries)
        header, mad = port.receive(10000)
        if failed or header is None:
            sys.exit(f"errno {failed}, {mad}")
        print(f"timeout {timeout}: status {status_of(header)}, {len(mad)} bytes, agent {struct.unpack_from('=I', header)[0]}, "
              f"after {time.monotonic() - begun:.1f} s")


def faults():
    whole, raw = Port(), Port(rmpp=0)
    long = data_of(1000)
    print("not active:", errno.errorcode.get(whole.send(message(GET, 1, long, active=0), 1)))
    print("an agent without RMPP:", errno.errorcode.get(raw.send(message(GET, 1, long), 1)))
    print("a class without RMPP:", errno.errorcode.get(whole.send(message(GET, 1, long, management_class=0x09), 1)))
    print("too long:", errno.errorcode.get(whole.send(message(GET, 1, bytes(MAX_BYTES)), 1)))
    print("too short:", errno.errorcode.get(whole.send(message(GET, 1, b"")[:35], 1)))


def raw():
    """Queries all nodes with an agent that reassembles messages itself."""
    port = Port(rmpp=0, management_class=0x03)
    query = struct.pack(">BBBBHHQHHI", 1, 3, 2, GET_TABLE, 0, 0, 5, 0x11, 0, 0) + bytes(MAD - 24)
    failed = port.send(query, 1, timeout=2000)
    if failed:
        sys.exit(f"umad_send: errno {failed}")
    numbers = []
    while True:
        header, mad = port.receive(3000)
        if header is None or status_of(header):
            sys.exit(f"after {numbers}: {mad if header is None else status_of(header)}")
        kind, flags = mad[25], mad[26]
        number, = struct.unpack_from(">I", mad, 28)
        if len(mad) != MAD or kind != DATA:
            sys.exit(f"{len(mad)} bytes, type {kind}")
        if number not in numbers:
            numbers.append(number)
        ack = mad[:3] + bytes([GET_TABLE]) + mad[4:24] + struct.pack(">BBBBII", 1, ACK, ACTIVE, 0, number, number + 1) + bytes(220)
        port.send(ack, 1)
        if flags & 4:
            break
    print(f"segments {numbers}: {'good' if numbers == list(range(1, len(numbers) + 1)) and len(numbers) > 1 else 'wrong'}")


def wait(lid):
    port = Port()
    failed = port.send(message(GET, 99, data_of(100), active=0), int(lid), timeout=60000)
    print(f"sent {failed}", flush=True)
    begun = time.monotonic()
    header, mad = port.receive(50000)
    if header is None:
        sys.exit(f"umad_recv: {mad}")
    print(f"status {status_of(header)}, transaction {struct.unpack_from('>Q', mad, 8)[0] & 0xffffffff}, "
          f"{'soon' if time.monotonic() - begun < 40 else 'late'}", flush=True)


def ask_on(lid):
    port = Port()
    for number in range(1, 1000):
        print(f"{number}: {ask_once(port, int(lid), 10000, 1000 * os.getpid() % 2**24 + number) or 'good'}", flush=True)
        time.sleep(0.2)


if __name__ == "__main__":
    {"serve": serve, "ask": ask, "ask-nobody": ask_nobody, "faults": faults, "raw": raw, "wait": wait,
     "ask-on": ask_on}[sys.argv[1]](*sys.argv[2:])
