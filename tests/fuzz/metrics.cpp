// metrics.jsonl of a run that resumes after step 7, and as `replay` reads it.
#include <filesystem>

#include "tests/fuzz/fuzz.h"
#include "triax/parallel/program/metrics_file.h"
#include "triax/parallel/train/runs/report.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace triax;
  static test::FileOf file("metrics.jsonl");
  file.set(data, size);
  return test::accept_or_refuse([&] {
    (void)parallel::read_metrics(std::filesystem::path(file.path()).parent_path());
    using Owner = parallel::Metrics::Place::Owner;
    parallel::Metrics metrics({file.path(), "tokens", Owner::this_run}, 7);
  });
}
