#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "core/check.h"
#include "optim/transfers.h"

namespace triax::optim {
namespace {

class Uring final : public Transfers {
 public:
  /// `error()` says whether there is a ring.
  Uring(int descriptor, unsigned most)
      : descriptor_(descriptor), error_(io_uring_queue_init(most, &ring_, 0)) {}
  ~Uring() override {
    if (error_ == 0) io_uring_queue_exit(&ring_);
  }
  int error() const { return error_; }

  void start(const Transfer& t, uint64_t tag) override {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);  // each is handed over at once: one is free
    auto length =
        unsigned(std::min(t.bytes, size_t(1) << 30));  // what it leaves is asked for again
    if (t.kind == Transfer::Kind::read)
      io_uring_prep_read(entry, descriptor_, t.data, length, t.offset);
    else io_uring_prep_write(entry, descriptor_, t.data, length, t.offset);
    io_uring_sqe_set_data64(entry, tag);
    submit();
  }

  End next() override {
    io_uring_cqe* ended = nullptr;
    while (true) {
      submit();
      bool all = io_uring_sq_ready(&ring_) == 0;  // else the kernel has no room: do not sleep
      int error = all ? io_uring_wait_cqe(&ring_, &ended) : io_uring_peek_cqe(&ring_, &ended);
      if (error == 0) break;
      check_passes(error);  // a signal came between, or nothing has ended
    }
    End end{io_uring_cqe_get_data64(ended), ended->res};
    io_uring_cqe_seen(&ring_, ended);
    return end;
  }

 private:
  void submit() {
    while (io_uring_sq_ready(&ring_) > 0) {
      int error = io_uring_submit(&ring_);
      if (error >= 0) continue;
      check_passes(error);
      if (error != -EINTR) return;  // no room: next() tries again
    }
  }
  static void check_passes(int error) {
    bool passes = error == -EINTR || error == -EAGAIN || error == -EBUSY;
    check_input(passes, Exit::io, "offload: io_uring: {}; expected that it goes on",
                std::generic_category().message(-error));
  }

  int descriptor_;
  io_uring ring_{};
  int error_;
};

}  // namespace

std::unique_ptr<Transfers> uring_transfers(int descriptor, unsigned most) {
  auto ring = std::make_unique<Uring>(descriptor, most);
  if (ring->error() != 0) return nullptr;
  return ring;
}

}  // namespace triax::optim
