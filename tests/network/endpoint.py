#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sends the traffic of the emulator's tests: numbered datagrams whose bytes follow from their number, and streams.

    endpoint.py receive PORT                      prints in JSON: numbers in order of arrival, marked, damaged
    endpoint.py send ADDRESS PORT COUNT [...]     sends datagrams, then connects to tell the receiver that it has sent all
    endpoint.py take PORT                         receives a stream; prints its length and SHA-256 in JSON
    endpoint.py stream ADDRESS PORT BYTES SEED    sends a stream; prints its length and SHA-256 in JSON
    endpoint.py echo PORT                         answers a datagram
    endpoint.py ask ADDRESS PORT                  prints in JSON the time until the answer
    endpoint.py path_mtu ADDRESS BYTES            sends datagrams of this size until the kernel reports that they are too large
"""

import argparse
import hashlib
import json
import random
import select
import socket
import struct
import sys
import time

SOL_UDP, UDP_SEGMENT = 17, 103
IP_MTU_DISCOVER, IP_PMTUDISC_DO, IP_MTU, IP_RECVTOS = 10, 2, 14, 13
CONGESTION_EXPERIENCED = 3


def datagram(number, size):
    pattern = hashlib.sha256(struct.pack("!I", number)).digest()
    return (struct.pack("!I", number) + pattern * (size // len(pattern) + 1))[:size]


def listen(port):
    server = socket.create_server(("", port))
    print("ready", flush=True)
    return server


def receive(options):
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
    datagrams.setsockopt(socket.IPPROTO_IP, IP_RECVTOS, 1)
    datagrams.bind(("", options.port))
    server = listen(options.port)
    numbers, marked, damaged, done = [], 0, 0, False
    while not done:
        ready, _, _ = select.select([datagrams, server], [], [])
        done = server in ready
        while True:
            try:
                data, control, _, _ = datagrams.recvmsg(65536, 64, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            number = struct.unpack("!I", data[:4])[0]
            numbers.append(number)
            damaged += data != datagram(number, len(data))
            marked += any(value[0] & 3 == CONGESTION_EXPERIENCED for _, kind, value in control if kind == socket.IP_TOS)
    server.accept()[0].close()
    print(json.dumps({"numbers": numbers, "marked": marked, "damaged": damaged}))


def send(options):
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, options.tos)
    if options.together > 1:
        sender.setsockopt(SOL_UDP, UDP_SEGMENT, options.bytes)
    for first in range(0, options.count, options.together):
        numbers = range(first, min(first + options.together, options.count))
        sender.sendto(b"".join(datagram(number, options.bytes) for number in numbers), (options.address, options.port))
    socket.create_connection((options.address, options.port)).close()


def take(options):
    connection, _ = listen(options.port).accept()
    digest, size = hashlib.sha256(), 0
    while data := connection.recv(1 << 20):
        digest.update(data)
        size += len(data)
    print(json.dumps({"bytes": size, "digest": digest.hexdigest()}))


def stream(options):
    data = random.Random(options.seed).randbytes(options.bytes)
    began = time.monotonic()
    with socket.create_connection((options.address, options.port)) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)  # the peer closes once it has received everything
    print(json.dumps({"bytes": len(data), "digest": hashlib.sha256(data).hexdigest(), "seconds": time.monotonic() - began}))


def echo(options):
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("", options.port))
    print("ready", flush=True)
    while True:
        data, peer = server.recvfrom(65536)
        server.sendto(data, peer)


def ask(options):
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.connect((options.address, options.port))
    began = time.monotonic()
    client.send(b"?")
    client.recv(16)
    print(json.dumps({"seconds": time.monotonic() - began}))


def path_mtu(options):
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
    client.connect((options.address, 9))
    deadline = time.monotonic() + 10
    try:
        while time.monotonic() < deadline:
            client.send(bytes(options.bytes))
            select.select([client], [], [], 0.05)
    except OSError:  # EMSGSIZE
        pass
    print(json.dumps({"mtu": client.getsockopt(socket.IPPROTO_IP, IP_MTU)}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    roles = parser.add_subparsers(required=True)
    for function, words in ((receive, ["port"]), (send, ["address", "port", "count"]), (take, ["port"]),
                            (stream, ["address", "port", "bytes", "seed"]), (echo, ["port"]), (ask, ["address", "port"]),
                            (path_mtu, ["address", "bytes"])):
        role = roles.add_parser(function.__name__)
        role.set_defaults(function=function)
        for word in words:
            role.add_argument(word, type=str if word == "address" else int)
        if function is send:
            role.add_argument("--bytes", type=int, default=1000)
            role.add_argument("--together", type=int, default=1, help="datagrams per send call, cut by the device (UDP_SEGMENT)")
            role.add_argument("--tos", type=int, default=0)
    options = parser.parse_args()
    options.function(options)


if __name__ == "__main__":
    sys.exit(main())
