// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "adapter/objects/support/helper.h"
#include "adapter/objects/support/services.h"

namespace verbena::adapter::testing {

// What all of a crowd have mapped.
struct SharedByCrowd;

// Eight processes that read and write memory of this one, again and again, by a key that this one takes back
// and gives: what they read is to be what was there while the key was valid (kValid), and nothing is to be
// written afterwards.
class CrowdAtMemory {
 public:
  static constexpr size_t kProcesses = 8;
  static constexpr size_t kBytes = 1 << 14;
  static constexpr std::byte kValid{1};
  static constexpr std::byte kOwn{2};  // nobody else's to see or to change

  struct Tally {
    bool is_last = false;
    uint64_t reads = 0;
    uint64_t writes = 0;
    uint64_t refused = 0;
    uint64_t wrong = 0;  // READs of what was no more theirs to see
  };

  CrowdAtMemory();
  ~CrowdAtMemory();
  CrowdAtMemory(const CrowdAtMemory&) = delete;
  CrowdAtMemory& operator=(const CrowdAtMemory&) = delete;

  // `address` is what they are at from now on. Who is refused is joined again.
  void start(uint64_t address);
  // For all of them, or for one.
  void set_key(uint32_t rkey);
  void set_key(size_t process, uint32_t rkey);
  Tally end();

  ibv_pd* pd() { return bench_.pd.get(); }
  // What comes of a request of ours that sends nothing: by a QP of its own, or by the one that a process is
  // connected to. One thread.
  ibv_wc_status execute(ibv_send_wr request);
  ibv_wc_status execute(size_t process, ibv_send_wr request);

 private:
  Address address_of(ibv_qp* qp) const;
  ibv_wc_status execute_by(ibv_qp* qp, ibv_send_wr request);
  void join_those_who_were_refused();
  void join_again(size_t process);

  UniqueFd file_;
  SharedByCrowd* shared_ = nullptr;
  std::vector<std::unique_ptr<Helper>> helpers_;
  Bench bench_;
  Qp own_;
  Qp owns_peer_;
  std::vector<Qp> ends_;
  std::array<std::mutex, kProcesses> ends_locks_;  // held while the end is used, or joined again
  std::vector<Address> peers_;
  std::array<Tally, kProcesses> tallies_{};
  std::thread joiner_;
};

bool are(std::span<const std::byte> bytes, std::byte value);

// How often a key is to be taken back: what this variable of the environment says, or some thousands.
uint64_t times_to_take_back(const char* variable);

}  // namespace verbena::adapter::testing
