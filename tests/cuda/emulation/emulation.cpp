#include "triax/core/cuda/runtime/emulation.h"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "tests/cuda/emulation/races.h"
#include "triax/core/check.h"

// AddressSanitizer is told of every change of stacks; null without it.
extern "C" __attribute__((weak)) void __sanitizer_start_switch_fiber(void** fake, const void* to,
                                                                     size_t bytes);
extern "C" __attribute__((weak)) void __sanitizer_finish_switch_fiber(void* fake, const void** from,
                                                                      size_t* bytes);
extern "C" __attribute__((weak)) void __asan_unpoison_memory_region(const void* at, size_t bytes);

namespace triax::cuda::emulation {

namespace {

// Where a stack was left. By jumps a switch needs no system call, as it does where the signals'
// mask goes along; but AddressSanitizer would take a jump for the end of a stack.
#if defined(__SANITIZE_ADDRESS__) || defined(__clang__)
using Place = ucontext_t;
void go(Place& from, Place& to) { swapcontext(&from, &to); }
void begin(Place& from, ucontext_t& stack) { swapcontext(&from, &stack); }
#else
struct Place {
  jmp_buf at;
};
void go(Place& from, Place& to) {
  if (_setjmp(from.at) == 0) _longjmp(to.at, 1);
}
void begin(Place& from, ucontext_t& stack) {
  if (_setjmp(from.at) == 0) setcontext(&stack);
}
#endif

enum class State { fresh, ready, at_block, at_warp, done };

constexpr size_t stack_bytes = 128 << 10;

using Stack = std::unique_ptr<char[]>;
// What threads of a kernel have left, for the next.
thread_local std::vector<Stack> stacks;

Stack take_stack() {
  if (stacks.empty()) return Stack(new char[stack_bytes]);
  Stack stack = std::move(stacks.back());
  stacks.pop_back();
  if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(stack.get(), stack_bytes);
  return stack;
}

/// A thread of the kernel; on a stack of its own if it has to wait for others.
struct Fiber {
  Place place;  // where it goes on
  Stack stack;
  State state = State::fresh;
  int line = 0;             // where it waits
  char offered[8], got[8];  // of exchange()
  int from = 0;
  bool exchanges = false;
};

thread_local Order order = Order::forward;
thread_local int64_t launched = 0;

// One launch's fibers. The scheduler is the host thread's own stack. Threads that do not wait run
// one after another on one stack.
class Block {
 public:
  explicit Block(const Job& job) : job_(job), fibers_(size_t(job.threads)), turns_(fibers_.size()) {
    std::iota(turns_.begin(), turns_.end(), 0);
  }
  ~Block() {
    for (Fiber& f : fibers_)
      if (f.stack) stacks.push_back(std::move(f.stack));
  }
  void run(const int64_t (&at)[3], void* shared, std::minstd_rand& dice);
  /// In one of the orders, for they are the same in all, and looked for slowly.
  Races* races() { return job_.shared_bytes > 0 && order == Order::reversed ? &races_ : nullptr; }
  void wait(State state, int line);
  Fiber& current() { return fibers_[size_t(current_)]; }

 private:
  static void enter();
  void run_threads();
  bool next_is_fresh();
  void start(Fiber& f);
  void resume(int id);
  bool release(size_t begin, size_t end, State waiting);
  [[noreturn]] void hangs() const;
  void switch_to_scheduler();

  const Job& job_;
  std::vector<Fiber> fibers_;
  std::vector<int> turns_;
  Place scheduler_;
  const int64_t (*at_)[3] = nullptr;
  void* shared_ = nullptr;
  int current_ = 0;
  Races races_;
  size_t turn_ = 0;  // whose it is
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
  block.run_threads();
  leave_stack(nullptr, block.scheduler_stack_, block.scheduler_stack_bytes_);  // for good
  go(block.current().place, block.scheduler_);
}

// The current thread, and those behind it as long as none had to wait before.
void Block::run_threads() {
  try {
    do {
      job_.body(current_, *at_, shared_);
      current().state = State::done;
    } while (next_is_fresh());
  } catch (...) {
    current().state = State::done;
    error_ = std::current_exception();
  }
}

bool Block::next_is_fresh() {
  if (turn_ + 1 >= turns_.size()) return false;
  Fiber& next = fibers_[size_t(turns_[turn_ + 1])];
  if (next.state != State::fresh) return false;
  // It waits, if it does, on this stack.
  std::swap(next.stack, current().stack);
  current_ = turns_[++turn_];
  next.state = State::ready;
  return true;
}

void Block::start(Fiber& f) {
  f.state = State::ready;
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = f.stack.get();
  context.uc_stack.ss_size = stack_bytes;
  context.uc_link = nullptr;
  makecontext(&context, &Block::enter, 0);
  begin(scheduler_, context);
}

void Block::resume(int id) {
  current_ = id;
  Fiber& f = fibers_[size_t(id)];
  if (f.state == State::fresh) f.stack = take_stack();
  leave_stack(&scheduler_fake_stack_, f.stack.get(), stack_bytes);
  if (f.state == State::fresh) start(f);
  else go(scheduler_, f.place);
  reach_stack(scheduler_fake_stack_, nullptr, nullptr);
  if (Fiber& last = current(); last.state == State::done) stacks.push_back(std::move(last.stack));
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Block::wait(State state, int line) {
  Fiber& f = current();
  f.state = state;
  f.line = line;
  void* fake = nullptr;
  leave_stack(&fake, scheduler_stack_, scheduler_stack_bytes_);
  go(f.place, scheduler_);
  reach_stack(fake, &scheduler_stack_, &scheduler_stack_bytes_);
}

// Let fibers [begin, end) go on if all of them wait there.
bool Block::release(size_t begin, size_t end, State waiting) {
  for (size_t i = begin; i < end; ++i)
    if (fibers_[i].state != waiting || fibers_[i].line != fibers_[begin].line) return false;
  if (waiting == State::at_block) races_.block_met();
  else if (!fibers_[begin].exchanges) races_.warp_met(int(begin) / 32);
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
  races_.begin_block(shared, job_.shared_bytes, &current_);
  for (Fiber& f : fibers_) f.state = State::fresh;
  size_t n = fibers_.size();
  for (;;) {
    if (order == Order::reversed) std::sort(turns_.begin(), turns_.end(), std::greater<>());
    if (order == Order::shuffled) std::shuffle(turns_.begin(), turns_.end(), dice);
    for (turn_ = 0; turn_ < n; ++turn_) {
      State state = fibers_[size_t(turns_[turn_])].state;
      if (state == State::fresh || state == State::ready) resume(turns_[turn_]);
    }
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
    explicit Running(Block& b) { running = &b, races = b.races(); }
    ~Running() { running = nullptr, races = nullptr; }
  } guard(block);
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
    if (Races* r = block.races(); r && !r->found().empty()) fail(Exit::internal, "{}", r->found());
  }
}

void sync(int line) { running->wait(State::at_block, line); }
void sync_warp(int line) {
  running->current().from = 0;
  running->current().exchanges = false;
  running->wait(State::at_warp, line);
}
void exchange(void* value, size_t bytes, int from, int line) {
  Fiber& f = running->current();
  check(from >= 0 && from < 32, "cuda emulation: shuffle from lane {}; expected 0 to 31", from);
  std::memcpy(f.offered, value, bytes);
  f.from = from;
  f.exchanges = true;
  running->wait(State::at_warp, line);
  std::memcpy(value, f.got, bytes);
}
void require_aligned(const void* address, size_t alignment) {
  check(reinterpret_cast<uintptr_t>(address) % alignment == 0,
        "cuda emulation: {} bytes at {}; expected a multiple of {}", alignment, address, alignment);
}

}  // namespace triax::cuda::emulation
