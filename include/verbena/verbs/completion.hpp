// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include <endian.h>
#include <infiniband/verbs.h>
#include <verbena/result.hpp>
#include <verbena/verbs/device.hpp>
#include <verbena/verbs/object.hpp>

// Completion queues, and how to sleep until they have something.
namespace verbena {

namespace detail {

// Returns the operation of a completion as text, for errors. The operation of a failed completion is not
// valid (ibv_poll_cq(3)). Callers that know the request pass the operation of the request.
inline const char* name_of(ibv_wc_opcode operation) {
  switch (operation) {
    case IBV_WC_SEND:
      return "SEND";
    case IBV_WC_RDMA_WRITE:
      return "RDMA WRITE";
    case IBV_WC_RDMA_READ:
      return "RDMA READ";
    case IBV_WC_COMP_SWAP:
      return "compare and swap";
    case IBV_WC_FETCH_ADD:
      return "fetch and add";
    case IBV_WC_BIND_MW:
      return "bind of a memory window";
    case IBV_WC_LOCAL_INV:
      return "local invalidation";
    case IBV_WC_RECV:
    case IBV_WC_RECV_RDMA_WITH_IMM:
      return "receive";
    default:
      return "work request";
  }
}

}  // namespace detail

// The completion of a work request, laid out as ibv_wc.
class completion : private ibv_wc {
 public:
  // Whether the request succeeded.
  explicit operator bool() const { return ibv_wc::status == IBV_WC_SUCCESS; }
  // The number that the request was posted with.
  std::uint64_t id() const { return wr_id; }
  ibv_wc_status status() const { return ibv_wc::status; }
  std::uint32_t qp_num() const { return ibv_wc::qp_num; }
  // REQUIRES: the request failed
  verbena::error error() const {
    return verbena::error("work request", ibv_wc::status, ibv_wc::qp_num, vendor_err);
  }

  // REQUIRES for all below: the request succeeded
  ibv_wc_opcode operation() const { return opcode; }
  bool is_receive() const { return (opcode & IBV_WC_RECV) != 0; }
  // Returns the number of bytes that were received, read or fetched. For UD, it includes the 40 bytes of the
  // global route header.
  std::uint32_t bytes() const { return byte_len; }
  // Returns the immediate data, 32 bits in host byte order, or nothing if the sender has sent none.
  std::optional<std::uint32_t> immediate() const {
    if ((wc_flags & IBV_WC_WITH_IMM) == 0) return std::nullopt;
    return be32toh(imm_data);
  }
  // Returns the remote key that the sender has invalidated, or nothing.
  std::optional<std::uint32_t> invalidated() const {
    if ((wc_flags & IBV_WC_WITH_INV) == 0) return std::nullopt;
    return invalidated_rkey;
  }
  // For a UD receive: the sender's queue pair, and whether the first 40 bytes are a global route header.
  std::uint32_t source_qp() const { return src_qp; }
  bool has_route_header() const { return (wc_flags & IBV_WC_GRH) != 0; }

  const ibv_wc& get() const { return *this; }

 private:
  template <std::size_t N>
  friend class completions;
};
static_assert(sizeof(completion) == sizeof(ibv_wc));

// Completions that one poll has taken from a queue: a range that lives on the stack.
template <std::size_t N>
class completions {
 public:
  explicit completions(ibv_cq* queue) : count_(ibv_poll_cq(queue, static_cast<int>(N), all_.data())) {}
  completions(const completions&) = delete;
  completions& operator=(const completions&) = delete;

  // False if the queue is broken, as after an overflow (IBV_EVENT_CQ_ERR).
  explicit operator bool() const { return count_ >= 0; }
  std::size_t size() const { return count_ > 0 ? static_cast<std::size_t>(count_) : 0; }
  bool empty() const { return size() == 0; }
  const completion* begin() const { return all_.data(); }
  const completion* end() const { return all_.data() + size(); }
  const completion& operator[](std::size_t index) const { return all_[index]; }

 private:
  std::array<completion, N> all_;
  int count_;
};

// Wakes threads that sleep until a completion queue has something (cq::arm()).
class completion_channel : public object<ibv_comp_channel> {
 public:
  using object::object;

  // Returns the descriptor, which is readable when a queue has an event. The program may put it into its own
  // event loop, and may make it non-blocking.
  int fd() const { return get()->fd; }
  // Waits for an event and acknowledges it. Returns the queue that has one, as the pointer of cq::get(). The
  // queue must be armed again before the next event. Fails with EAGAIN if the descriptor is non-blocking and
  // there is no event.
  result<ibv_cq*> wait() const {
    ibv_cq* queue = nullptr;
    void* unused = nullptr;
    if (ibv_get_cq_event(get(), &queue, &unused) != 0) return error("wait for a completion", errno);
    ibv_ack_cq_events(queue, 1);
    return queue;
  }
};

inline result<completion_channel> context::make_channel() const {
  ibv_comp_channel* const made = ibv_create_comp_channel(get());
  if (made == nullptr) return failure("make a completion channel on", errno);
  return completion_channel(detail::own(made, ibv_destroy_comp_channel, handle()));
}

// A completion queue.
class cq : public object<ibv_cq> {
 public:
  using object::object;

  // Takes up to N completions. The fastest N is about the number of completions that are usually there.
  template <std::size_t N = 16>
  completions<N> poll() const {
    return completions<N>(get());
  }
  // Asks for one event on the channel when the next completion comes. With `solicited_only`, only a
  // completion that has failed, or a receive whose message was sent by a solicited() request, causes the
  // event. Poll once more after this call, because completions that came before it cause no event.
  result<void> arm(bool solicited_only = false) const {
    if (const int code = ibv_req_notify_cq(get(), solicited_only ? 1 : 0); code != 0)
      return error("arm a completion queue", code);
    return {};
  }
  // Returns the number of completions that the queue can hold. It may be more than was asked for.
  std::uint32_t capacity() const { return static_cast<std::uint32_t>(get()->cqe); }
  // Changes the number of completions that the queue can hold. Fails with EINVAL if the queue has more
  // completions than that.
  result<void> resize(std::uint32_t entries) const {
    if (const int code = ibv_resize_cq(get(), static_cast<int>(entries)); code != 0)
      return error("resize a completion queue", code);
    return {};
  }
};

inline result<cq> context::make_cq(std::uint32_t entries, const completion_channel* channel) const {
  ibv_cq* const made = ibv_create_cq(get(), static_cast<int>(entries), nullptr,
                                     channel != nullptr ? channel->get() : nullptr, 0);
  if (made == nullptr) return failure("make a completion queue on", errno);
  auto kept = channel != nullptr ? channel->handle() : nullptr;
  return cq(detail::own(made, ibv_destroy_cq, handle(), std::move(kept)));
}

// ---- extended completion queues

// The current completion of an extended queue. A field is read from the adapter's own format when its
// function is called. REQUIRES: the queue was made with the field
class extended_completion {
 public:
  explicit extended_completion(ibv_cq_ex* queue) : queue_(queue) {}

  explicit operator bool() const { return status() == IBV_WC_SUCCESS; }
  std::uint64_t id() const { return queue_->wr_id; }
  ibv_wc_status status() const { return queue_->status; }
  ibv_wc_opcode operation() const { return ibv_wc_read_opcode(queue_); }
  std::uint32_t bytes() const { return ibv_wc_read_byte_len(queue_); }
  std::uint32_t qp_num() const { return ibv_wc_read_qp_num(queue_); }
  std::uint32_t source_qp() const { return ibv_wc_read_src_qp(queue_); }
  std::optional<std::uint32_t> immediate() const {
    if ((ibv_wc_read_wc_flags(queue_) & IBV_WC_WITH_IMM) == 0) return std::nullopt;
    return be32toh(ibv_wc_read_imm_data(queue_));
  }
  std::optional<std::uint32_t> invalidated() const {
    if ((ibv_wc_read_wc_flags(queue_) & IBV_WC_WITH_INV) == 0) return std::nullopt;
    return ibv_wc_read_invalidated_rkey(queue_);
  }
  // Return the time of the completion: in ticks of the adapter's clock, and in nanoseconds since 1970.
  std::uint64_t timestamp() const { return ibv_wc_read_completion_ts(queue_); }
  std::uint64_t wallclock_ns() const { return ibv_wc_read_completion_wallclock_ns(queue_); }
  verbena::error error() const {
    return verbena::error("work request", status(), qp_num(), ibv_wc_read_vendor_err(queue_));
  }
  ibv_cq_ex* get() const { return queue_; }

 private:
  ibv_cq_ex* queue_;
};

// An extended completion queue: completions with chosen fields. One thread polls it at a time.
class extended_cq : public object<ibv_cq_ex> {
 public:
  using object::object;

  ibv_cq* plain() const { return ibv_cq_ex_to_cq(get()); }

  // Calls `take` with each completion that is there, up to `most`, and returns their number. `take` must not
  // keep the completion.
  template <class Take>
  result<std::size_t> poll(Take take, std::size_t most = 64) const {
    ibv_poll_cq_attr unused{};
    std::size_t count = 0;
    int code = most != 0 ? ibv_start_poll(get(), &unused) : ENOENT;
    if (code == ENOENT) return count;
    if (code != 0) return error("poll a completion queue", code);
    const ended_poll ended{get()};
    do {
      take(extended_completion(get()));
    } while (++count < most && (code = ibv_next_poll(get())) == 0);
    if (code != 0 && code != ENOENT) return error("poll a completion queue", code);
    return count;
  }
  // See cq::arm().
  result<void> arm(bool solicited_only = false) const {
    if (const int code = ibv_req_notify_cq(plain(), solicited_only ? 1 : 0); code != 0)
      return error("arm a completion queue", code);
    return {};
  }

 private:
  struct ended_poll {
    ibv_cq_ex* queue;
    ~ended_poll() { ibv_end_poll(queue); }
  };
};

inline result<extended_cq> context::make_extended_cq(std::uint32_t entries, std::uint64_t fields,
                                                     const completion_channel* channel) const {
  ibv_cq_init_attr_ex wanted{};
  wanted.cqe = entries;
  wanted.channel = channel != nullptr ? channel->get() : nullptr;
  wanted.wc_flags = fields;
  ibv_cq_ex* const made = ibv_create_cq_ex(get(), &wanted);
  if (made == nullptr) return failure("make an extended completion queue on", errno);
  const auto destroy = [](ibv_cq_ex* last) { ibv_destroy_cq(ibv_cq_ex_to_cq(last)); };
  auto kept = channel != nullptr ? channel->handle() : nullptr;
  return extended_cq(detail::own(made, destroy, handle(), std::move(kept)));
}

}  // namespace verbena
