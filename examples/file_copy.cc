// SPDX-License-Identifier: Apache-2.0
// Copies files: the client READs them from the server's memory, or WRITEs them to it, in pieces of which many
// are under way at once. Shows verbena/cm.hpp: connections, messages, remote memory and coroutines.
//
//   verbena run file_copy serve FOLDER [::]:7471         # in one shell
//   verbena run file_copy get HOST:7471 NAME FILE        # in another shell: FOLDER/NAME becomes FILE
//   verbena run file_copy put HOST:7471 FILE NAME        # FILE becomes FOLDER/NAME
//
// Files of any size pass through one window of memory. The server opens nothing outside of its folder. Leaves
// out: permissions of users, attributes of files, a second window that would keep disk and network both busy.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <verbena/cm.hpp>

#include "file.hpp"

namespace {

using namespace verbena;
using namespace example;

constexpr std::uint64_t kWindow = 4 << 20;
constexpr std::uint64_t kPiece = 64 << 10;

// The client's first message, and the server's answer. In the byte order of hosts, which must be the same.
struct request {
  std::uint8_t is_put = 0;  // no bool, which a malicious client could give a third value
  std::uint64_t size = 0;   // of a file that the client puts
  std::array<char, 256> name{};
};
struct answer {
  int code = 0;            // an errno, or 0
  std::uint64_t size = 0;  // of a file that the client gets
  remote_slice window;
};

// Opens the file that a client names. Refuses names that lead out of the folder: paths and symbolic links.
file open_in(const std::string& folder, const request& wanted) {
  const std::string name(wanted.name.data(), ::strnlen(wanted.name.data(), wanted.name.size()));
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos)
    fail(EACCES, "open a file outside of " + folder);
  const int flags = wanted.is_put ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY;
  return open_file(folder + "/" + name, flags | O_NOFOLLOW | O_NONBLOCK);
}

// Serves one client. For each part of the file, says when the window is ready, and waits until the client is.
task<> serve(connection client, const std::string& folder) {
  const auto wanted = co_await client.receive_value<request>();
  const region window = client.share(kWindow, wanted.is_put ? access::remote_write : access::remote_read);
  answer offered{0, wanted.size, window.remote()};
  file local;
  try {
    local = open_in(folder, wanted);
    const std::uint64_t size = size_of(local);
    if (!wanted.is_put) offered.size = size;
  } catch (const std::system_error& refused) {
    offered.code = refused.code().value();
  }
  const auto first = client.send_value(offered);  // may be the last, as below
  for (std::uint64_t left = offered.code == 0 ? offered.size : 0; left != 0;) {
    const std::span<std::byte> part = window.first(std::min(left, kWindow)).bytes();
    if (!wanted.is_put) read_from(local, part);
    co_await client.send_value('r');
    co_await client.receive_value<char>();
    if (wanted.is_put) write_to(local, part);
    left -= part.size();
  }
  const auto last = client.send_value('e');
  co_await client.receive();  // until the client disconnects: that may overtake the completion of `last`
}

task<> listen(loop& io, std::string folder, std::string where) {
  listener door(io, where);
  std::printf("serving %s at port %u\n", folder.c_str(), door.port());
  std::fflush(stdout);
  for (;;) io.spawn(serve(co_await door.accept(), folder));
}

// Copies a part of the file. All its pieces are under way at once.
task<> copy_part(connection& server, const file& local, bool is_put, remote_slice window) {
  std::vector<pending<buffer>> reads;
  std::vector<pending<void>> writes;
  for (std::uint64_t at = 0; at < window.size; at += kPiece) {
    const remote_slice there = window.part(at, std::min(kPiece, window.size - at));
    if (is_put) {
      buffer piece = server.make_buffer(there.size);
      read_from(local, piece.bytes());
      writes.push_back(server.write(there, std::move(piece)));
    } else {
      reads.push_back(server.read(there));
    }
  }
  for (auto& each : reads) write_to(local, (co_await each).bytes());
  for (auto& each : writes) co_await each;
}

task<> copy(loop& io, bool is_put, std::string where, std::string from, std::string to) {
  file local = is_put ? open_file(from, O_RDONLY) : file();
  request wanted{is_put, is_put ? size_of(local) : 0};
  const std::string& name = is_put ? to : from;
  if (name.size() > wanted.name.size()) fail(ENAMETOOLONG, "copy " + name);
  std::ranges::copy(name, wanted.name.begin());
  connection server = co_await connect(io, where);
  co_await server.send_value(wanted);
  const auto offered = co_await server.receive_value<answer>();
  if (offered.code != 0) fail(offered.code, "open " + name + " on the server");
  if (!is_put) local = open_file(to, O_WRONLY | O_CREAT | O_TRUNC);
  for (std::uint64_t left = offered.size; left != 0; left -= std::min(left, kWindow)) {
    co_await server.receive_value<char>();
    co_await copy_part(server, local, is_put, offered.window.first(std::min(left, kWindow)));
    co_await server.send_value('d');
  }
  co_await server.receive_value<char>();  // the server has written everything
  co_await server.close();
  std::printf("%llu bytes\n", static_cast<unsigned long long>(offered.size));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view verb = argc > 1 ? argv[1] : "";
  const bool serves = verb == "serve" && argc == 4;
  if (!serves && !((verb == "get" || verb == "put") && argc == 5)) {
    std::fputs("usage: file_copy serve FOLDER ADDRESS | get ADDRESS NAME FILE | put ADDRESS FILE NAME\n",
               stderr);
    return 1;
  }
  try {
    loop io;
    io.run(serves ? listen(io, argv[2], argv[3]) : copy(io, verb == "put", argv[2], argv[3], argv[4]));
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "file_copy: %s\n", failed.what());
    return 1;
  }
}
