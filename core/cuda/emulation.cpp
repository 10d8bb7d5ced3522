#include "core/cuda/emulation.h"

#include <ucontext.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "core/check.h"

// AddressSanitizer is told of every change of stacks; null without it.
extern "C" __attribute__((weak)) void __sanitizer_start_switch_fiber(void** fake, const void* to,
                                                                     size_t bytes);
extern "C" __attribute__((weak)) void __sanitizer_finish_switch_fiber(void* fake, const void** from,
                                                                      size_t* bytes);

namespace triax::cuda::emulation {

namespace {

enum class State { ready, at_block, at_warp, done };

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  State state = State::ready;
  int line = 0;             // where it waits
  char offered[8], got[8];  // of exchange()
  int from = 0;
};

constexpr size_t stack_bytes = 128 << 10;
thread_local Order order = Order::forward;
thread_local int64_t launched = 0;

// One launch's fibers. The scheduler is the host thread's own stack.
class Block {
 public:
  explicit Block(const Job& job) : job_(job), fibers_(size_t(job.threads)), turns_(fibers_.size()) {
    for (Fiber& f : fibers_) f.stack.reset(new char[stack_bytes]);
    std::iota(turns_.begin(), turns_.end(), 0);
  }
  void run(const int64_t (&at)[3], void* shared, std::minstd_rand& dice);
  void wait(State state, int line);
  Fiber& current() { return fibers_[size_t(current_)]; }

 private:
  static void enter();
  void start(int id);
  void resume(int id);
  bool release(size_t begin, size_t end, State waiting);
  [[noreturn]] void hangs() const;
  void switch_to_scheduler();

  const Job& job_;
  std::vector<Fiber> fibers_;
  std::vector<int> turns_;
  ucontext_t scheduler_;
  const int64_t (*at_)[3] = nullptr;
  void* shared_ = nullptr;
  int current_ = 0;
  std::exception_ptr error_;
  void* scheduler_fake_stack_ = nullptr;
  const void* scheduler_stack_ = nullptr;
  size_t scheduler_stack_bytes_ = 0;
};

thread_local Block* running = nullptr;

void leave_stack(void** fake, const void* to, size_t bytes) {
  if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(fake, to, bytes);
}
void reach_stack(void* fake, const void** from, size_t* bytes) {
  if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(fake, from, bytes);
}

void Block::enter() {
  Block& block = *running;
  reach_stack(nullptr, &block.scheduler_stack_, &block.scheduler_stack_bytes_);
  try {
    block.job_.body(block.current_, *block.at_, block.shared_);
  } catch (...) {
    block.error_ = std::current_exception();
  }
  block.current().state = State::done;
  leave_stack(nullptr, block.scheduler_stack_, block.scheduler_stack_bytes_);  // for good
  setcontext(&block.scheduler_);
}

void Block::start(int id) {
  Fiber& f = fibers_[size_t(id)];
  f.state = State::ready;
  getcontext(&f.context);
  f.context.uc_stack.ss_sp = f.stack.get();
  f.context.uc_stack.ss_size = stack_bytes;
  f.context.uc_link = nullptr;
  makecontext(&f.context, &Block::enter, 0);
}

void Block::resume(int id) {
  current_ = id;
  Fiber& f = fibers_[size_t(id)];
  leave_stack(&scheduler_fake_stack_, f.stack.get(), stack_bytes);
  swapcontext(&scheduler_, &f.context);
  reach_stack(scheduler_fake_stack_, nullptr, nullptr);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Block::wait(State state, int line) {
  Fiber& f = current();
  f.state = state;
  f.line = line;
  void* fake = nullptr;
  leave_stack(&fake, scheduler_stack_, scheduler_stack_bytes_);
  swapcontext(&f.context, &scheduler_);
  reach_stack(fake, &scheduler_stack_, &scheduler_stack_bytes_);
}

// Let fibers [begin, end) go on if all of them wait there.
bool Block::release(size_t begin, size_t end, State waiting) {
  for (size_t i = begin; i < end; ++i)
    if (fibers_[i].state != waiting || fibers_[i].line != fibers_[begin].line) return false;
  for (size_t i = begin; i < end; ++i) {
    Fiber& f = fibers_[i];
    if (waiting == State::at_warp) std::memcpy(f.got, fibers_[begin + size_t(f.from)].offered, 8);
    f.state = State::ready;
  }
  return true;
}

void Block::hangs() const {
  auto waits = std::find_if(fibers_.begin(), fibers_.end(),
                            [](const Fiber& f) { return f.state != State::done; });
  bool of_block = waits->state == State::at_block;
  auto range = [&] {  // those that it waits for
    auto begin = of_block ? fibers_.begin() : waits - (waits - fibers_.begin()) % 32;
    return std::pair(begin, of_block ? fibers_.end() : begin + 32);
  }();
  auto other = std::find_if(range.first, range.second, [&](const Fiber& f) {
    return f.state != waits->state || f.line != waits->line;
  });
  std::string where =
      other->state == State::done
          ? std::string("has left the kernel")
          : fmt::format("waits for its {} at line {}",
                        other->state == State::at_block ? "block" : "warp", other->line);
  fail(Exit::internal,
       "cuda emulation: thread {} waits for its {} at line {}, but thread {} {}; expected all at "
       "one place",
       waits - fibers_.begin(), of_block ? "block" : "warp", waits->line, other - fibers_.begin(),
       where);
}

void Block::run(const int64_t (&at)[3], void* shared, std::minstd_rand& dice) {
  at_ = &at;
  shared_ = shared;
  for (int id = 0; id < job_.threads; ++id) start(id);
  size_t n = fibers_.size();
  for (;;) {
    if (order == Order::reversed) std::sort(turns_.begin(), turns_.end(), std::greater<>());
    if (order == Order::shuffled) std::shuffle(turns_.begin(), turns_.end(), dice);
    for (int id : turns_)
      if (fibers_[size_t(id)].state == State::ready) resume(id);
    if (std::all_of(fibers_.begin(), fibers_.end(),
                    [](const Fiber& f) { return f.state == State::done; }))
      return;
    bool moved = release(0, n, State::at_block);
    for (size_t warp = 0; warp < n; warp += 32) moved |= release(warp, warp + 32, State::at_warp);
    if (!moved) hangs();
  }
}

void check_grid(const Job& job) {
  bool fits = job.grid_x >= 1 && job.grid_x <= 0x7fffffff && job.grid_y >= 1 &&
              job.grid_y <= 65535 && job.grid_z >= 1 && job.grid_z <= 65535;
  check(fits, "cuda emulation: a grid of {} x {} x {} blocks; expected 1 to 2^31 - 1, 65535, 65535",
        job.grid_x, job.grid_y, job.grid_z);
}

}  // namespace

void set_order(Order o) { order = o; }
int64_t launches() { return launched; }

void run(const Job& job) {
  check_grid(job);
  ++launched;
  Block block(job);
  struct Running {
    explicit Running(Block* b) { running = b; }
    ~Running() { running = nullptr; }
  } guard(&block);
  std::minstd_rand dice(1);
  int64_t n = job.grid_x * job.grid_y * job.grid_z;
  std::vector<int64_t> blocks(static_cast<size_t>(n));
  std::iota(blocks.begin(), blocks.end(), 0);
  if (order == Order::reversed) std::reverse(blocks.begin(), blocks.end());
  if (order == Order::shuffled) std::shuffle(blocks.begin(), blocks.end(), dice);
  for (int64_t b : blocks) {
    std::unique_ptr<char[]> shared(new char[job.shared_bytes]);  // new: its end is watched
    std::memset(shared.get(), 0xff, job.shared_bytes);
    block.run({b % job.grid_x, b / job.grid_x % job.grid_y, b / job.grid_x / job.grid_y},
              shared.get(), dice);
  }
}

void sync(int line) { running->wait(State::at_block, line); }
void sync_warp(int line) {
  running->current().from = 0;
  running->wait(State::at_warp, line);
}
void exchange(void* value, size_t bytes, int from, int line) {
  Fiber& f = running->current();
  check(from >= 0 && from < 32, "cuda emulation: shuffle from lane {}; expected 0 to 31", from);
  std::memcpy(f.offered, value, bytes);
  f.from = from;
  running->wait(State::at_warp, line);
  std::memcpy(value, f.got, bytes);
}
void require_aligned(const void* address, size_t alignment) {
  check(reinterpret_cast<uintptr_t>(address) % alignment == 0,
        "cuda emulation: {} bytes at {}; expected a multiple of {}", alignment, address, alignment);
}

}  // namespace triax::cuda::emulation
