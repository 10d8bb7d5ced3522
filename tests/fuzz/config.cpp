// A configuration file in TOML; what was read is written and read again.
#include "tests/fuzz/fuzz.h"
#include "triax/core/check.h"
#include "triax/parallel/train/options/options.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace triax;
  static test::FileOf file("config.toml");
  static parallel::TrainOptions o, again;
  static auto settings = parallel::train_settings(o), others = parallel::train_settings(again);
  o = again = {};
  file.set(data, size);
  return test::accept_or_refuse([&] {
    parallel::read_config(settings, file.path());
    std::string toml = parallel::to_toml(settings);
    file.set(reinterpret_cast<const uint8_t*>(toml.data()), toml.size());
    parallel::read_config(others, file.path());
    check(parallel::to_toml(others) == toml, "another configuration was read than was written");
  });
}
