#include "core/profile.h"

#include <chrono>
#include <utility>

#include "core/gpus.h"

namespace triax {
namespace {

thread_local Profile* this_profile = nullptr;

}  // namespace

const char* name(Activity what) {
  constexpr const char* names[activities] = {"work", "action",        "layer",  "optimizer",
                                             "data", "communication", "waiting"};
  return names[size_t(what)];
}

Profile* profile() { return this_profile; }
void set_profile(Profile* p) { this_profile = p; }
const char* profiled_layer() { return this_profile ? this_profile->layer() : nullptr; }

Profile::~Profile() {
  if (this_profile == this) this_profile = nullptr;
}

int64_t Profile::now() {
  auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

void Profile::open(const char* name, Activity what) { open_.push_back({name, name, what, now()}); }

void Profile::close(std::string name) {
  Frame f = std::move(open_.back());
  open_.pop_back();
  if (!name.empty()) f.name = std::move(name);
  int64_t end = now();
  spent_[size_t(f.what)] += end - f.begin - f.inside;
  if (!open_.empty()) {
    Frame& outer = open_.back();
    outer.inside += end - f.begin;
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
  operation.begin = now();
  operations_.push_back(std::move(operation));
  return operations_.size() - 1;
}

void Profile::finish(size_t operation) { operations_[operation].end = now(); }

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
  if (profile_ && profile_ == this_profile) profile_->close();
  end_gpu_range();
}

}  // namespace triax
