#include "triax/parallel/train/callbacks.h"

namespace triax::parallel {

void CallbackList::check(const char* what, const std::vector<std::string>& allowed) const {
  if (!running_) return;
  bool all = running_->where == On::all, fits = std::ranges::count(allowed, running_->name) > 0;
  check_input(fits && all, Exit::config, "trainer: {} in a callback `{}`{}; expected it {}", what,
              running_->name, all ? "" : " of the first rank alone",
              allowed.empty() ? "outside of callbacks"
                              : fmt::format("in {}, registered for all ranks: "
                                            "trainer.on({{..}}, On::all)",
                                            join(allowed, ", ")));
}

}  // namespace triax::parallel
