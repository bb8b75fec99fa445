// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/format.h"
#include "base/unique_fd.h"

namespace verbena::test {

// A FUSE file whose server answers lookup and open, and then nothing more. A process that reads its
// attributes or closes it blocks as long as the server lives. Needs root; the process gets a mount namespace
// of its own.
class SilentFile {
 public:
  static constexpr size_t kBytes = 4096;

  SilentFile() {
    char directory[] = "/tmp/verbena-silent-XXXXXX";
    device_.reset(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
    if (!device_ || ::unshare(CLONE_NEWNS) != 0 || ::mkdtemp(directory) == nullptr) return;
    ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    const std::string options =
        verbena::format("fd={},rootmode=40755,user_id=0,group_id=0,allow_other", device_.get());
    if (::mount("silent", directory, "fuse", MS_NOSUID | MS_NODEV, options.c_str()) != 0) return;
    server_ = ::fork();
    if (server_ == 0) serve();
    device_.reset();  // the server has the last copy: the file fails once the server ends
    file_.reset(::open(verbena::format("{}/file", directory).c_str(), O_RDWR | O_CLOEXEC));
    ::umount2(directory, MNT_DETACH);  // removes the name; the file stays open
    ::rmdir(directory);
  }
  // -1 if FUSE files are not possible here.
  int fd() const { return file_.get(); }
  // Kill it before processes that have the file open end.
  pid_t server() const { return server_; }

 private:
  [[noreturn]] void serve() const {
    alignas(fuse_in_header) std::array<std::byte, 1 << 16> request;
    while (::read(device_.get(), request.data(), request.size()) > 0) {
      fuse_in_header header;
      std::memcpy(&header, request.data(), sizeof header);
      if (header.opcode == FUSE_INIT) {
        fuse_init_out init{};
        init.major = FUSE_KERNEL_VERSION;
        init.minor = 31;
        init.max_write = 4096;
        answer(header, init);
      } else if (header.opcode == FUSE_LOOKUP) {
        fuse_entry_out entry{};
        entry.nodeid = 2;
        entry.attr.ino = 2;
        entry.attr.mode = S_IFREG | 0666;
        entry.attr.nlink = 1;
        entry.attr.size = kBytes;
        answer(header, entry);
      } else if (header.opcode == FUSE_OPEN) {
        answer(header, fuse_open_out{});
      }
    }
    ::_exit(0);
  }
  template <class Out>
  void answer(const fuse_in_header& request, const Out& out) const {
    std::array<std::byte, sizeof(fuse_out_header) + sizeof(Out)> reply;
    const fuse_out_header header{static_cast<uint32_t>(reply.size()), 0, request.unique};
    std::memcpy(reply.data(), &header, sizeof header);
    std::memcpy(reply.data() + sizeof header, &out, sizeof out);
    [[maybe_unused]] const ssize_t written = ::write(device_.get(), reply.data(), reply.size());
  }

  UniqueFd device_;
  UniqueFd file_;
  pid_t server_ = -1;
};

}  // namespace verbena::test
