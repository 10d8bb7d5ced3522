// A communicator of one's own: every transfer takes the time of a slow network, on one machine.
//   slow_link parity --mesh 2x2x1 --latency-ms 1 --gbits 1
#include <algorithm>
#include <chrono>
#include <thread>

#include "points.h"

using namespace triax;
using namespace triax::parallel;
using Clock = std::chrono::steady_clock;

struct Link {
  double latency_ms = 0, gbits = 1;
  Clock::duration time(double bytes) const {
    std::chrono::duration<double> seconds(latency_ms * 1e-3 + bytes * 8e-9 / gbits);
    return std::chrono::duration_cast<Clock::duration>(seconds);
  }
};

/// A transfer that is over when `work` is, and not before `end`.
struct Slow final : Operation {
  Slow(Work w, Clock::time_point t, std::shared_ptr<Fault> f)
      : work(std::move(w)), end(t), fault(std::move(f)) {}
  bool advance() override { return work.done() && Clock::now() >= end; }
  void wait() override {
    work.wait();
    std::this_thread::sleep_until(end);
  }
  void abandon(std::exception_ptr error) noexcept override { fault->note(error); }
  Work work;
  Clock::time_point end;
  std::shared_ptr<Fault> fault;
};

/// Hands every transfer on. What a rank calls on one communicator, one link moves in this order.
class SlowComm final : public WrapperComm {
 public:
  SlowComm(std::unique_ptr<Communicator> inner, const Link& link)
      : WrapperComm(std::move(inner)), link_(link) {}
  const char* transport() const override { return "a slow link"; }

 private:
  Work start(Transfer t) override {
    bool moves = t.call.kind != Call::barrier && t.call.kind != Call::split;
    const Tensor& moved = t.from.defined() ? t.from : t.to;
    double bytes = moves ? double(moved.bytes()) : 0;
    Work work = start_inner(std::move(t));
    if (!moves) return work;
    free_ = std::max(free_, Clock::now()) + link_.time(bytes);
    return Work(std::make_shared<Slow>(std::move(work), free_, fault()));
  }
  std::unique_ptr<Communicator> start_split(Group group, int number, int color) override {
    return std::make_unique<SlowComm>(split_inner(std::move(group), number, color), link_);
  }

  const Link& link_;
  Clock::time_point free_ = {};
};

int main(int argc, char** argv) {
  Link link;
  ProgramOptions o = program_of("slow_link", "Tries a slow network.");
  SettingGroup group("Link", OnResume::free);
  group.add("latency-ms", "X", "of a transfer, in milliseconds", &link.latency_ms, {{.min = 0}})
      .add("gbits", "X", "bandwidth in Gbit/s", &link.gbits, {{.min = 0, .open_min = true}});
  o.settings = group;
  o.train.launch.wrap = [&](auto world) {
    return std::make_unique<SlowComm>(std::move(world), link);
  };
  return program(argc, argv, o);
}
