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

// The memory that all processes of the crowd map.
struct SharedByCrowd;

// Eight processes that repeatedly read and write this process's memory with a key that this process revokes
// and renews. Tests check that READs return only data from the time when the key was valid (kValid), and that
// no WRITE takes effect after the key is revoked.
class CrowdAtMemory {
 public:
  static constexpr size_t kProcesses = 8;
  static constexpr size_t kBytes = 1 << 14;
  static constexpr std::byte kValid{1};
  static constexpr std::byte kOwn{2};  // private: no other process may read or change it

  struct Tally {
    bool is_last = false;
    uint64_t reads = 0;
    uint64_t writes = 0;
    uint64_t refused = 0;
    uint64_t wrong = 0;  // READs that returned data without a valid key
  };

  CrowdAtMemory();
  ~CrowdAtMemory();
  CrowdAtMemory(const CrowdAtMemory&) = delete;
  CrowdAtMemory& operator=(const CrowdAtMemory&) = delete;

  // Lets all processes access `address` from now on. A process whose access is refused is connected again.
  void start(uint64_t address);
  // Sets the key for all processes, or for one.
  void set_key(uint32_t rkey);
  void set_key(size_t process, uint32_t rkey);
  Tally end();

  ibv_pd* pd() { return bench_.pd.get(); }
  // Executes a request that sends no packet (bind, local invalidate) and returns its status. Uses a QP of its
  // own, or the one that a process is connected to. Call it from one thread only.
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
  std::array<std::mutex, kProcesses> ends_locks_;  // held while the end is used or reconnected
  std::vector<Address> peers_;
  std::array<Tally, kProcesses> tallies_{};
  std::thread joiner_;
};

bool are(std::span<const std::byte> bytes, std::byte value);

// Returns how often to revoke a key: the value of this environment variable, or some thousands.
uint64_t times_to_take_back(const char* variable);

}  // namespace verbena::adapter::testing
