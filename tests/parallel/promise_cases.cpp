#include "tests/parallel/promise_cases.h"

#include <chrono>
#include <random>

#include "triax/core/check.h"
#include "triax/parallel/comm/processes/operation_queue.h"

namespace triax::parallel::cases {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begun) {
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

/// What a rank may call, and how a message names it. Tensors hold 6 elements a rank, so that each
/// call is valid by itself.
struct Kind {
  std::string text;
  std::function<void(Communicator&)> call;
};

Tensor part(int64_t n, DType dtype = f32) { return zeros({n}, dtype, cpu); }
Tensor whole(const Communicator& c, int64_t n = 6) { return part(n * c.size()); }

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"all_reduce(sum, f32[6])", [](auto& c) { c.all_reduce(part(6)).wait(); }},
      {"all_reduce(max, f32[6])", [](auto& c) { c.all_reduce(part(6), ReduceOp::max).wait(); }},
      {"all_reduce(sum, f32[5])", [](auto& c) { c.all_reduce(part(5)).wait(); }},
      {"all_reduce(sum, i32[6])", [](auto& c) { c.all_reduce(part(6, i32)).wait(); }},
      {"reduce(sum, f32[6], root 0)", [](auto& c) { c.reduce(part(6), 0).wait(); }},
      {"broadcast(f32[6], root 0)", [](auto& c) { c.broadcast(part(6), 0).wait(); }},
      {"broadcast(f32[6], root 1)", [](auto& c) { c.broadcast(part(6), 1).wait(); }},
      {"all_gather(f32[6])", [](auto& c) { c.all_gather(part(6), whole(c)).wait(); }},
      {"reduce_scatter(sum, f32[6])", [](auto& c) { c.reduce_scatter(whole(c), part(6)).wait(); }},
      {"gather(f32[6], root 0)", [](auto& c) { c.gather(part(6), whole(c), 0).wait(); }},
      {"scatter(f32[6], root 0)", [](auto& c) { c.scatter(whole(c), part(6), 0).wait(); }},
      {"all_to_all(f32[6])", [](auto& c) { c.all_to_all(whole(c), whole(c)).wait(); }},
      {"barrier()", [](auto& c) { c.barrier(); }},
  };
  return all;
}

/// Both calls of a pair, on a communicator of their own.
void check_pair(Communicator& world, const Kind& ours, const Kind& odd) {
  auto group = world.split([](int r) { return Communicator::Seat{0, r}; }, "pair");
  group->barrier();
  std::string said;
  try {
    (group->rank() == 1 ? odd : ours).call(*group);
  } catch (const Error& e) {
    said = e.what();
    check(e.code() == Exit::mismatch, "{} and {}: {}", ours.text, odd.text, said);
  }
  for (const std::string& part : {ours.text, odd.text, std::string("Last call that matched: 1")})
    check(said.find(part) != said.npos, "{} and {}: no `{}` in `{}`", ours.text, odd.text, part,
          said);
  size_t first = said.find("promise_cases.cpp:"), last = said.rfind("promise_cases.cpp:");
  check(first != last, "{} and {}: not both places in `{}`", ours.text, odd.text, said);
}

/// One of them, the same on every rank; x holds 1 on each.
void call_any(Communicator& c, uint64_t number) {
  int64_t n = 1 + int64_t(number / 16 % 64);
  int root = int(number / 1024 % uint64_t(c.size()));
  Tensor x = full({n}, 1, f32, cpu);
  switch (number % 6) {
    case 0:
      c.all_gather(x, part(n * c.size())).wait();
      break;
    case 1:
      c.reduce_scatter(part(n * c.size()), x).wait();
      return;
    case 2:
      c.broadcast(x, root).wait();
      break;
    case 3:
      if (c.rank() == root) c.send(x, (root + 1) % c.size()).wait();
      if (c.rank() == (root + 1) % c.size()) c.recv(x, root).wait();
      break;
    case 4:
      c.barrier();
      break;
    default:
      c.all_reduce(x).wait();
      check(x.to_host<float>().back() == float(c.size()), "all_reduce: a wrong sum");
      return;
  }
  check(x.to_host<float>().back() == 1, "call {}: another value", number % 6);
}

}  // namespace

std::string check_mismatches(Communicator& world) {
  double slowest = 0;
  int pairs = 0;
  for (const Kind& ours : kinds())
    for (const Kind& odd : kinds()) {
      if (&odd <= &ours) continue;
      auto begun = Clock::now();
      check_pair(world, ours, odd);
      slowest = std::max(slowest, seconds_since(begun));
      check(slowest < 1, "{} and {}: {:.2f} s", ours.text, odd.text, slowest);
      world.barrier();
      ++pairs;
    }
  return fmt::format("{} kinds, slowest {:.3f} s", pairs, slowest);
}

double check_no_alarm(Communicator& world, int64_t calls, uint64_t seed) {
  std::mt19937_64 random(seed);
  auto begun = Clock::now();
  for (int64_t i = 0; i < calls; ++i) call_any(world, random());
  return seconds_since(begun) / double(calls);
}

double seconds_to_compare() {
  constexpr int times = 10'000;
  Call mine{.kind = Call::all_reduce, .numel = 6, .place = Place::here()};
  double least = 1;
  for (int repeat = 0; repeat < 100; ++repeat) {  // others may run in between
    int equal = 0;
    auto begun = Clock::now();
    for (int i = 0; i < times; ++i) {
      Call sent = mine;
      sent.numel = i % 8;
      equal += PackedCall::of(sent).call().matches(mine);
    }
    least = std::min(least, seconds_since(begun) / times);
    check(equal == times / 8, "{} of {} calls matched", equal, times);
  }
  return least;
}

}  // namespace triax::parallel::cases
