#include "examples/minigpt/offload.h"

#include <filesystem>

#include "core/check.h"
#include "core/files.h"

namespace triax::minigpt {
namespace {

optim::Offload offload_of(const std::string& flag) {
  using To = optim::Offload::To;
  if (flag == "off") return {};
  if (flag == "optimizer") return {.to = To::host};
  return {.to = To::file, .directory = flag};
}

}  // namespace

optim::AdamWOptions adam_options(const TrainConfig& c, double eps) {
  return {.beta1 = c.beta1,
          .beta2 = c.beta2,
          .eps = eps,
          .weight_decay = c.weight_decay,
          .offload = offload_of(c.offload)};
}

void check_offload(const TrainConfig& c) {
  auto offload = offload_of(c.offload);
  if (offload.to != optim::Offload::To::file) return;
  const std::string& name = offload.directory;
  bool word = name.find('/') == name.npos && !std::filesystem::exists(name);
  check_input(!word, Exit::not_found,
              "offload: {}: No such file or directory; expected off, optimizer, or a directory",
              printable(name));
  optim::check_offload_directory(name);
}

}  // namespace triax::minigpt
