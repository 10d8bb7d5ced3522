#pragma once
#include <map>
#include <string>

#include "triax/parallel/plan/hardware.h"

namespace triax::parallel {

/// The time of one rank on the meta device, in seconds from 0. It goes on while kernels are at
/// work, for as long as the hardware would take (KernelWork of this thread), and jumps where the
/// rank waits for others. Made and used on the rank's thread.
class VirtualClock {
 public:
  /// Kernels take `slowness` times as long. `hardware` must outlive it.
  VirtualClock(const Hardware& hardware, DType dtype, double slowness)
      : hardware_(hardware), dtype_(dtype), slowness_(slowness), seen_(meta_work()) {}

  /// Returns the time, with the kernels that were asked for so far.
  double now() const {
    KernelWork work = meta_work() - seen_;
    return now_ + slowness_ * with_host(hardware_.seconds(work, dtype_), hardware_.launches(work));
  }
  /// Waits until `time`, which may have passed; `why` is a communicator's name.
  void wait_until(double time, const std::string& why) {
    double before = now();
    if (time <= before) return;
    waits_[why.substr(0, why.find(' '))] += time - before;  // `link 3 up` as `link`
    now_ = time, seen_ = meta_work();
  }
  /// Returns the seconds waited, by the first words of names.
  const std::map<std::string, double>& waits() const { return waits_; }
  const Hardware& hardware() const { return hardware_; }

 private:
  const Hardware& hardware_;
  DType dtype_;
  double slowness_, now_ = 0;
  KernelWork seen_;
  std::map<std::string, double> waits_;
};

}  // namespace triax::parallel
