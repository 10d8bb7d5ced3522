#include "parallel/comm/profiled.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/profile.h"

namespace triax::parallel {
namespace {

/// Wraps an operation and reports when it is waited for and done.
class ProfiledOperation final : public Operation {
 public:
  ProfiledOperation(std::shared_ptr<Operation> operation, std::string name,
                    std::function<void()> finished)
      : operation_(std::move(operation)), waits_("wait " + name), finished_(std::move(finished)) {}

  bool advance() override {
    bool done = operation_->advance();
    if (done) finished_();
    return done;
  }
  void wait() override {
    {
      ProfileRange range(waits_.c_str(), Activity::waiting);
      operation_->wait();
    }
    finished_();
  }
  void abandon(std::exception_ptr error) noexcept override {
    operation_->abandon(std::move(error));
  }

 private:
  std::shared_ptr<Operation> operation_;
  std::string waits_;
  std::function<void()> finished_;
};

int64_t bytes_of(const Tensor& x) { return x.defined() ? int64_t(x.bytes()) : 0; }

}  // namespace

Work profiled(const Group& group, Transfer t, const std::function<Work(Transfer t)>& start) {
  std::string kind(name(t.call.kind));
  ProfileRange range(kind.c_str(), Activity::communication);
  Profile::Operation made{.name = kind + " " + group.name,
                          .call = describe(t.call),
                          .group = group.str(),
                          .bytes = std::max(bytes_of(t.from), bytes_of(t.to))};
  std::string full = made.name;
  Profile* p = profile();
  auto finished = [p, number = p->start(std::move(made))] {
    if (profile() == p) p->finish(number);  // else nobody records any more
  };
  auto operation = start(std::move(t)).release();
  if (operation)
    return Work(std::make_shared<ProfiledOperation>(std::move(operation), full, finished));
  finished();
  return {};
}

}  // namespace triax::parallel
