#include "triax/core/profile.h"

#include <chrono>
#include <utility>

#include "triax/core/gpus.h"

namespace triax {
namespace {

thread_local Profile* this_profile = nullptr;

class HostsClock final : public ProfileClock {
 public:
  int64_t mark() override { return Profile::now(); }
  int64_t time(int64_t mark) override { return mark; }
};

}  // namespace

const char* name(Activity what) {
  constexpr const char* names[activities] = {"work", "action",        "layer",  "optimizer",
                                             "data", "communication", "waiting"};
  return names[size_t(what)];
}

ProfileClock::~ProfileClock() = default;

Profile* profile() { return this_profile; }
void set_profile(Profile* p) { this_profile = p; }
const char* profiled_layer() { return this_profile ? this_profile->layer() : nullptr; }

Profile::Profile(std::unique_ptr<ProfileClock> clock)
    : clock_(clock ? std::move(clock) : std::make_unique<HostsClock>()) {}

Profile::~Profile() {
  if (this_profile == this) this_profile = nullptr;
}

int64_t Profile::now() {
  auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

void Profile::open(const char* name, Activity what) {
  open_.push_back({name, name, what, clock_->mark()});
}

void Profile::close(std::string name) {
  Frame f = std::move(open_.back());
  open_.pop_back();
  if (!name.empty()) f.name = std::move(name);
  int64_t end = clock_->mark();
  closed_.push_back({.what = f.what, .around = {}, .begin = f.begin, .end = end});
  if (open_.empty()) {
    whole_ = closed_.size();
  } else {
    Frame& outer = open_.back();
    closed_.back().around = outer.what;
    if (f.what == Activity::layer) {
      if (outer.what == f.what && outer.name == f.name) return;  // it is computed again
      bool goes_on = outer.last_layer < slices_.size() && slices_[outer.last_layer].name == f.name;
      if (goes_on) return void(slices_[outer.last_layer].end = end);
      outer.last_layer = slices_.size();
    }
  }
  slices_.push_back({std::move(f.name), f.what, f.begin, end});
}

size_t Profile::start(Operation operation) {
  operation.begin = clock_->mark();
  operations_.push_back(std::move(operation));
  return operations_.size() - 1;
}

void Profile::finish(size_t operation) { operations_[operation].end = clock_->mark(); }

void Profile::settle() {
  for (Slice& s : slices_) s.begin = clock_->time(s.begin), s.end = clock_->time(s.end);
  for (Operation& o : operations_) {
    o.begin = clock_->time(o.begin);
    o.end = o.end == not_seen ? o.begin : clock_->time(o.end);
  }
  for (size_t i = 0; i < whole_; ++i) {
    const Stretch& s = closed_[i];
    int64_t time = clock_->time(s.end) - clock_->time(s.begin);
    spent_[size_t(s.what)] += time;
    if (s.around) spent_[size_t(*s.around)] -= time;
  }
}

const char* Profile::layer() const {
  bool inside = !open_.empty() && open_.back().what == Activity::layer;
  return inside ? open_.back().given : nullptr;
}

ProfileRange::ProfileRange(const char* name, Activity what) : profile_(this_profile) {
  begin_gpu_range(name);
  if (profile_) profile_->open(name, what);
}

ProfileRange::ProfileRange(const char* op, const char* layer)
    : profile_(layer ? this_profile : nullptr) {
  begin_gpu_range(op);
  if (profile_) profile_->open(layer, Activity::layer);
}

ProfileRange::~ProfileRange() {
  try {
    if (profile_ && profile_ == this_profile) profile_->close();
  } catch (...) {  // the device is lost, which is reported already or by its next call
    this_profile = nullptr;
  }
  end_gpu_range();
}

}  // namespace triax
