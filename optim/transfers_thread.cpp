#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

#include "optim/transfers.h"

namespace triax::optim {
namespace {

class ThreadTransfers final : public Transfers {
 public:
  explicit ThreadTransfers(int descriptor)
      : descriptor_(descriptor), thread_([this] { serve(); }) {}
  ~ThreadTransfers() override {
    put(waiting_, std::nullopt);
    thread_.join();
  }

  void start(const Transfer& t, uint64_t tag) override { put(waiting_, Job{t, tag}); }
  End next() override { return take(ended_); }

 private:
  using Job = std::pair<Transfer, uint64_t>;

  void serve() {
    while (std::optional<Job> job = take(waiting_)) put(ended_, End{job->second, run(job->first)});
  }

  int64_t run(const Transfer& t) const {
    while (true) {
      int64_t n = t.kind == Transfer::Kind::read
                      ? ::pread(descriptor_, t.data, t.bytes, off_t(t.offset))
                      : ::pwrite(descriptor_, t.data, t.bytes, off_t(t.offset));
      if (n >= 0) return n;
      if (errno != EINTR) return -errno;
    }
  }

  template <class T> void put(std::deque<T>& queue, std::type_identity_t<T> value) {
    {
      std::lock_guard guard(lock_);
      queue.push_back(std::move(value));
    }
    changed_.notify_all();
  }
  template <class T> T take(std::deque<T>& queue) {
    std::unique_lock guard(lock_);
    changed_.wait(guard, [&] { return !queue.empty(); });
    T value = std::move(queue.front());
    queue.pop_front();
    return value;
  }

  int descriptor_;
  std::mutex lock_;
  std::condition_variable changed_;
  std::deque<std::optional<Job>> waiting_;  // none: the end
  std::deque<End> ended_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace

Transfers::~Transfers() = default;

std::unique_ptr<Transfers> thread_transfers(int descriptor) {
  return std::make_unique<ThreadTransfers>(descriptor);
}

}  // namespace triax::optim
