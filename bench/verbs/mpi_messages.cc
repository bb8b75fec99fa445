// SPDX-License-Identifier: Apache-2.0
// Measures messages between two MPI ranks. bench/verbs/one_host.py compiles it with mpic++ and starts it with
// mpirun. Prints one line each, the median of several measurements: half a round trip of 8 bytes, the rate of
// 1 MiB in both directions in turn, and the rate of 1 MiB in one direction, 16 at a time. MPI chooses its own
// transport.
#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <vector>

#include <mpi.h>

namespace {

constexpr int kRounds = 7;
constexpr int kWindow = 16;
constexpr int kLarge = 1 << 20;

// Returns the seconds for `count` exchanges with the other rank.
double exchange(int rank, std::vector<char>& buffer, int bytes, int count) {
  const double start = MPI_Wtime();
  for (int i = 0; i < count; ++i) {
    if (rank == 0) MPI_Send(buffer.data(), bytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
    MPI_Recv(buffer.data(), bytes, MPI_CHAR, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1) MPI_Send(buffer.data(), bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
  }
  return MPI_Wtime() - start;
}

// Returns the seconds for `count` windows of messages from rank 0 to rank 1, until the last has arrived.
double stream(int rank, std::vector<char>& buffer, int bytes, int count) {
  std::array<MPI_Request, kWindow> requests;
  const double start = MPI_Wtime();
  for (int i = 0; i < count; ++i) {
    for (MPI_Request& request : requests) {
      if (rank == 0) {
        MPI_Isend(buffer.data(), bytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD, &request);
      } else {
        MPI_Irecv(buffer.data(), bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD, &request);
      }
    }
    MPI_Waitall(kWindow, requests.data(), MPI_STATUSES_IGNORE);
  }
  char done = 0;
  if (rank == 1) {
    MPI_Send(&done, 1, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
  } else {
    MPI_Recv(&done, 1, MPI_CHAR, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  return MPI_Wtime() - start;
}

double median_of(const std::function<double()>& measure) {
  measure();  // connects and warms up
  std::vector<double> values;
  for (int i = 0; i < kRounds; ++i) values.push_back(measure());
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks != 2) {
    std::fprintf(stderr, "mpi_messages: it takes two ranks\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  std::vector<char> buffer(kLarge, static_cast<char>(rank));
  const double small = median_of([&] { return exchange(rank, buffer, 8, 2000) / 2000 / 2; });
  const double echoed = median_of([&] { return exchange(rank, buffer, kLarge, 100) / 100 / 2; });
  const double streamed = median_of([&] { return stream(rank, buffer, kLarge, 16) / 16 / kWindow; });
  if (rank == 0) {
    std::printf("half_round_trip_8 %.4g us\n", small * 1e6);
    std::printf("ping_pong_1MiB %.4g GB/s\n", kLarge / echoed / 1e9);
    std::printf("stream_1MiB %.4g GB/s\n", kLarge / streamed / 1e9);
  }
  MPI_Finalize();
}
