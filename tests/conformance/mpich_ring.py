# SPDX-License-Identifier: Apache-2.0
"""Passes messages around a ring of ranks over MPICH's C library, loaded with ctypes: Debian has no Python package for MPICH,
and this needs no compiler.

Each rank passes messages of 1 byte to 4 MiB to the next rank and checks what the previous rank sent. Rank 0 prints "ring of N: ok".
"""

import ctypes

# Handles from MPICH's mpi.h; they are part of its ABI.
COMM_WORLD = 0x44000000
BYTE = 0x4C00010D
STATUS_IGNORE = ctypes.c_void_p(1)
ROUNDS = 20

mpi = ctypes.CDLL("libmpich.so.12", mode=ctypes.RTLD_GLOBAL)


def number(function):
    value = ctypes.c_int()
    function(COMM_WORLD, ctypes.byref(value))
    return value.value


def main():
    mpi.MPI_Init(None, None)
    rank, size = number(mpi.MPI_Comm_rank), number(mpi.MPI_Comm_size)
    following, previous = (rank + 1) % size, (rank - 1) % size
    for length in (1, 1024, 65536, 4 << 20):
        received = ctypes.create_string_buffer(length)
        for round_number in range(ROUNDS):
            mpi.MPI_Sendrecv(bytes([rank + round_number]) * length, length, BYTE, following, 0,
                             received, length, BYTE, previous, 0, COMM_WORLD, STATUS_IGNORE)
            assert received.raw == bytes([previous + round_number]) * length
    mpi.MPI_Barrier(COMM_WORLD)
    if rank == 0:
        print(f"ring of {size}: ok")
    mpi.MPI_Finalize()


main()
