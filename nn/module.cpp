#include "triax/nn/module.h"

#include <algorithm>
#include <cctype>

#include "triax/core/check.h"
#include "triax/core/random.h"

namespace triax::nn {

std::vector<Parameter*> Module::parameters() {
  std::vector<Parameter*> all;
  for (auto& p : own_) all.push_back(p.get());
  for (auto& [name, m] : children_)
    for (auto* p : m->parameters()) all.push_back(p);
  return all;
}

std::vector<Buffer*> Module::buffers() {
  std::vector<Buffer*> all;
  for (auto& b : buffers_) all.push_back(b.get());
  for (auto& [name, m] : children_)
    for (auto* b : m->buffers()) all.push_back(b);
  return all;
}

void Module::bind(uint64_t seed) {
  check(!bound_, "module: bind was called twice; names and random streams are fixed once");
  bind(seed, "");
}

void Module::bind(uint64_t seed, const std::string& path) {
  bound_ = true;
  key_ = random::key(seed, path);
  for (auto& p : own_) {
    p->name = path + p->name;
    p->key = random::key(seed, p->name);
  }
  for (auto& b : buffers_) b->name = path + b->name;
  for (auto& [name, m] : children_) m->bind(seed, path + name + ".");
}

void Module::materialize(Device device, DType dtype, uint64_t seed) {
  bind(seed);
  memory::Scope scope(memory::parameters);
  for (auto* p : parameters()) {
    p->value = empty(p->local(), dtype, device);
    p->fill(p->value);
    if (!p->frozen) require_grad(p->value);
  }
  for (auto* b : buffers()) b->materialize(device);
}

Parameter& Module::parameter(Parameter p) {
  take_name(p.name, "parameters");
  own_.push_back(std::make_unique<Parameter>(std::move(p)));
  return *own_.back();
}

Buffer& Module::buffer(Buffer b) {
  take_name(b.name, "parameters");  // one namespace: checkpoints hold both
  buffers_.push_back(std::make_unique<Buffer>(std::move(b)));
  return *buffers_.back();
}

void Module::check_name(const std::string& name) {
  bool plain = std::ranges::all_of(
      name, [](unsigned char c) { return c < 0x80 && (std::isalnum(c) || c == '_' || c == '-'); });
  check_input(plain && !name.empty(), Exit::config,
              "module: name '{}'; expected letters, digits, `_` and `-`", name);
}

void Module::take_name(const std::string& name, const char* kind) {
  check_name(name);
  check_input(names_.insert(fmt::format("{} {}", kind, name)).second, Exit::config,
              "module: two {} named '{}'", kind, name);
}

}  // namespace triax::nn
